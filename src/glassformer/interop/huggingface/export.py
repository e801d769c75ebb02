"""`glass export RUN --to hf`: write a folder for `transformers`, which appears only if it matches the run."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from glassformer.base.config import LABELLED, OF_DECODERS, PAIRS, WRITERS, SampleConfig, Task
from glassformer.base.errors import MALFORMED, GlassError
from glassformer.base.files import refuse_taken, write_text
from glassformer.base.packages import require_packages, version_of
from glassformer.interop.atomic_output import write_atomically
from glassformer.interop.export_report import Comparison, ExportReport, ExportRequest
from glassformer.interop.huggingface.architecture import Architecture
from glassformer.interop.huggingface.choosing import choose
from glassformer.interop.huggingface.compare import compare
from glassformer.interop.huggingface.tokenizer_files import (
    TOKENIZER_CLASS,
    padding_or_end,
    refuse_unwritable,
    special_ids,
    template_tokens,
    write_tokenizer,
    writing_ids,
)
from glassformer.interop.huggingface.writing import to_huggingface
from glassformer.model.weights import save_tensors
from glassformer.runs.folder import CHAT_TEMPLATE_FILE
from glassformer.runs.opening import OpenedRun
from glassformer.text.tokenizers import frame_of

USES = {
    "ForCausalLM": "AutoModelForCausalLM",
    "LMHeadModel": "AutoModelForCausalLM",
    "ForMaskedLM": "AutoModelForMaskedLM",
    "ForTokenClassification": "AutoModelForTokenClassification",
    "ForSequenceClassification": "AutoModelForSequenceClassification",
}
"""Suffix of a class name -> its auto class in transformers; classes with other suffixes are encoder-decoders."""
NOTES = {
    "masked": "transformers' class for masked tokens has one more layer (model.head_transform): this class labels each "
    "position with its predicted token",
    "classify": "this class labels tokens, and the scores of a text are {} (summary_type in config.json); "
    'pipeline("text-classification") would load it with an untrained head',
}
WHOLE_TEXTS = "without --architecture, the export is {}, which labels whole texts with the run's own head"
WHOLE = "ForSequenceClassification"
OWN_CODE = (
    "transformers has no class that averages over a text's tokens: the folder contains one, {}.py; "
    "load it with trust_remote_code=True"
)
NO_PADDING = "exported as bert: roberta needs a padding token for its positions, which this run's tokenizer lacks"


def export(request: ExportRequest) -> ExportReport:
    """Export a run's checkpoint as a Hugging Face folder, which appears only if the reloaded model matches the run.

    Raises:
        GlassError: `request.dtype` is not float32, the package transformers is missing, the run cannot be read,
            Hugging Face cannot express its model or tokenizer, `request.out` exists, or the reloaded export does not
            match the run.
    """
    if request.dtype not in (None, "float32", "f32"):
        raise GlassError(
            f"--dtype {request.dtype} cannot be used with --to hf",
            "Leave --dtype out: the export is in float32, and another dtype can be chosen when it is loaded.",
        )
    refuse_taken(request.out)
    require_packages("export to Hugging Face", "transformers")
    opened = OpenedRun.load(request.folder, request.which, device="cpu")
    refuse_unwritable(opened)
    task = class_task(opened)
    imported_from = _imported_from(opened.folder)
    config = opened.model.config.replace(vocab_size=opened.model.vocab_size)
    ours = dict(opened.model.state_dict())
    padding_id = opened.tokenizer.padding_id
    architecture = choose(config, ours, task, request.architecture, imported_from, padding_id)
    class_name = architecture.classes[task]
    auto_class = next((use for end, use in USES.items() if class_name.endswith(end)), "AutoModelForSeq2SeqLM")
    request.note(f"writing {class_name}")

    def fill(folder: Path) -> tuple[Comparison, ...]:
        folder.mkdir()
        _write(folder, architecture, opened, opened.files.tokenizer_file)
        request.note("reloading and comparing")
        return compare(folder, opened, class_name if architecture.own_code else auto_class, architecture.needs_padding)

    comparisons = write_atomically("Hugging Face", request.out, fill)
    size = sum(path.stat().st_size for path in request.out.iterdir())
    pooled_scores = "those of its first token" if opened.config.model.pooling == "first" else "the mean over its tokens"
    notes = []
    if task in NOTES and class_name.endswith("ForTokenClassification"):
        notes.append(NOTES[task].format(pooled_scores))
    if task in LABELLED and class_name.endswith("ForTokenClassification"):
        try:
            text_architecture = choose(config, ours, task, None, imported_from, padding_id)
        except GlassError:  # no class for whole texts has this run's settings
            pass
        else:
            notes.append(WHOLE_TEXTS.format(text_architecture.classes[task]))
    if architecture.own_code:
        notes.append(OWN_CODE.format(architecture.own_code))
    if (imported_from or "").startswith("roberta") and architecture.needs_padding is None:
        notes.append(NO_PADDING)
    load_arguments = f'"{request.out}", trust_remote_code=True' if architecture.own_code else f'"{request.out}"'
    use = (
        f"from transformers import {auto_class}, AutoTokenizer\nmodel = {auto_class}.from_pretrained({load_arguments})"
    )
    use += f'\ntokenizer = AutoTokenizer.from_pretrained("{request.out}")'
    if opened.config.train.task == "lm":
        use += '\nids = tokenizer("TEXT", return_tensors="pt")'
        use += f"\nids = model.generate(**ids, max_new_tokens=50, {_sampling_arguments(opened.config.sample)})"
        use += "\nprint(tokenizer.decode(ids[0]))"
    if class_name.endswith(WHOLE):
        use = f'from transformers import pipeline\nclassify = pipeline("text-classification", model={load_arguments})'
    return ExportReport("hf", class_name, request.out, size, comparisons, version_of("transformers"), tuple(notes), use)


def _sampling_arguments(sample: SampleConfig) -> str:
    """Return the arguments of transformers' `generate` that sample from the distribution of `glass generate`.

    At temperature 0, the arguments select greedy decoding.
    """
    arguments: dict[str, float] = {}
    if sample.temperature:
        arguments = {"temperature": sample.temperature, "top_k": sample.top_k or 0}
        if sample.top_p is not None:
            arguments["top_p"] = sample.top_p
        if sample.min_p is not None:
            arguments["min_p"] = sample.min_p
    if sample.repetition_penalty != 1:
        arguments["repetition_penalty"] = sample.repetition_penalty
    return ", ".join(
        [f"do_sample={bool(sample.temperature)}", *(f"{name}={value:g}" for name, value in arguments.items())]
    )


def class_task(opened: OpenedRun) -> Task:
    """Return the task that determines the Hugging Face class: "lm" for a chat model, otherwise the task of the run."""
    task = opened.config.train.task
    return "lm" if task in OF_DECODERS else task


def _imported_from(run: Path) -> str | None:
    """Return the architecture of an imported run, as recorded in its manifest; None if the run was not imported."""
    try:
        name = json.loads((run / "manifest.json").read_text(encoding="utf-8"))["imported"]["architecture"]
    except (OSError, *MALFORMED):
        return None
    return str(name)


def _write(folder: Path, architecture: Architecture, opened: OpenedRun, tokenizer_file: Path) -> None:
    task = class_task(opened)
    values, tensors = to_huggingface(architecture, opened.model, task)
    values |= special_ids(opened.tokenizer, opened.config)
    if task in PAIRS:
        values["tokenizer_class"] = TOKENIZER_CLASS  # it tells CTranslate2 how mBART's texts begin
    if architecture.pads_with_end:
        values["pad_token_id"] = padding_or_end(opened.tokenizer)
    if architecture.own_code is not None:
        module = f"{architecture.own_code}.py"
        shutil.copyfile(Path(__file__).with_name(module), folder / module)
    if task == "masked" and not architecture.classes[task].endswith("MaskedLM"):
        names = [opened.tokenizer.token_text(id) for id in range(opened.model.vocab_size)]
        values |= _labels([f"{id} {name}" for id, name in enumerate(names)])
    elif task in LABELLED:
        values |= _labels(opened.labels)
        if not architecture.classes[task].endswith(WHOLE):
            values["summary_type"] = opened.config.model.pooling
    _write_json(folder / "config.json", values)
    template = opened.files.chat_template()
    template_ends, writes_start = template_tokens(template, opened.tokenizer)
    if task in WRITERS:
        extra_end_ids = opened.tokenizer.extra_end_ids | template_ends
        generation_config = writing_ids(opened.tokenizer, opened.config, extra_end_ids)
        if task in PAIRS:  # a decoder's prompts differ in length, so its callers give max_new_tokens
            generation_config["max_length"] = opened.config.model.context
        _write_json(folder / "generation_config.json", generation_config)
    save_tensors(tensors, folder / "model.safetensors", {"format": "pt"})
    write_tokenizer(folder, tokenizer_file, opened.tokenizer, opened.config, template)
    if template is not None:
        prepends_start = frame_of(opened.tokenizer, opened.config).before and not writes_start
        write_text(folder / CHAT_TEMPLATE_FILE, ("{{ bos_token }}" if prepends_start else "") + template)


def _labels(names: Sequence[str]) -> dict[str, Any]:
    return {
        "id2label": {str(i): name for i, name in enumerate(names)},
        "label2id": {name: i for i, name in enumerate(names)},
    }


def _write_json(path: Path, values: dict[str, Any]) -> None:
    path.write_text(json.dumps(values, ensure_ascii=False, indent=2) + "\n", encoding="utf-8")
