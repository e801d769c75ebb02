"""Imported models with special tokens around texts fill in masks, classify and generate as transformers does."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

from glassformer.base.config import SampleConfig
from glassformer.base.errors import GlassError
from glassformer.generation.beam import beam_search
from glassformer.interop.export_report import ExportRequest
from glassformer.interop.huggingface.export import export
from glassformer.interop.huggingface.importing import import_model
from glassformer.runs.opening import OpenedRun
from glassformer.tasks import MaskFiller, TextClassifier, Translator
from glassformer.tasks.example_tasks import count_too_long, labelled_rows, pair_rows
from glassformer.text.tokenizers import Frame
from tests.parity.hugging_face import change_config, transformers
from tests.unit.example_files import encoded

TEXTS = ["It was a small day.", "the old dog sleeps in the sun", "Привет, мир!", "3,141 days later, it rained"] * 4


def quiet(_: str) -> None:
    """Ignore the progress messages of an import."""


def wordpiece() -> Any:
    """Return a tokenizer like BERT's: special tokens first, lower case, [CLS] TEXT [SEP]."""
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    words = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    words.normalizer = normalizers.BertNormalizer()
    words.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    words.decoder = decoders.WordPiece()
    words.train_from_iterator(TEXTS, trainers.WordPieceTrainer(vocab_size=97, special_tokens=special))
    words.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    names = {"pad": special[0], "unk": special[1], "cls": special[2], "sep": special[3], "mask": special[4]}
    return _fast(words, names)


def byte_bpe(mask: bool = True) -> Any:
    """Return a tokenizer like RoBERTa's and BART's: <s> TEXT </s>, and a padding token with the id 1.

    Args:
        mask: whether to add a mask token, which absorbs a space before it.
    """
    words = Tokenizer(models.BPE())
    words.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    words.decoder = decoders.ByteLevel()
    special = ["<s>", "<pad>", "</s>", "<unk>"]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    words.train_from_iterator(
        TEXTS, trainers.BpeTrainer(vocab_size=283, special_tokens=special, initial_alphabet=alphabet)
    )
    words.add_special_tokens([AddedToken("<mask>", lstrip=True)] if mask else [])
    words.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0), add_prefix_space=False)
    names = {"bos": "<s>", "cls": "<s>", "pad": "<pad>", "eos": "</s>", "sep": "</s>", "unk": "<unk>"}
    return _fast(words, {**names, "mask": "<mask>"} if mask else names)


def unigram(single: str) -> Any:
    """Return a tokenizer like Marian's and mBART's, with language codes as special tokens.

    Args:
        single: template of a text and its special tokens.
    """
    words = Tokenizer(models.Unigram())
    words.pre_tokenizer = pre_tokenizers.Metaspace()
    words.decoder = decoders.Metaspace()
    special = ["<pad>", "</s>", "<unk>", "en_XX", "ro_RO"]
    words.train_from_iterator(TEXTS, trainers.UnigramTrainer(vocab_size=71, special_tokens=special, unk_token="<unk>"))
    words.post_processor = processors.TemplateProcessing(
        single=single, special_tokens=[(name, special.index(name)) for name in ("</s>", "en_XX", "ro_RO")]
    )
    return _fast(words, {"pad": "<pad>", "eos": "</s>", "unk": "<unk>"})


def _fast(words: Tokenizer, names: dict[str, str]) -> Any:
    parts = {f"{part}_token": name for part, name in names.items()}
    return transformers.PreTrainedTokenizerFast(tokenizer_object=words, **parts)


def save(folder: Path, kind: str, words: Any, **values: Any) -> Any:
    """Save a Hugging Face model with random weights and its tokenizer with `save_pretrained`, and return the model."""
    cls = getattr(transformers, kind)
    torch.manual_seed(0)
    model = cls(cls.config_class(vocab_size=len(words), pad_token_id=words.pad_token_id, **values)).eval()
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.2)
    for name in ("decoder_start_token_id", "forced_bos_token_id", "forced_eos_token_id"):
        if name in values:  # where their own models have it today
            setattr(model.generation_config, name, values[name])
    model.save_pretrained(folder)
    words.save_pretrained(folder)
    return model


ENCODER: dict[str, Any] = {
    "hidden_size": 30,
    "intermediate_size": 37,
    "num_hidden_layers": 2,
    "num_attention_heads": 5,
    "max_position_embeddings": 41,
}
ROBERTA: dict[str, Any] = {**ENCODER, "max_position_embeddings": 43, "type_vocab_size": 1}
FILLERS: dict[str, tuple[str, Any, dict[str, Any]]] = {
    "bert": ("BertForMaskedLM", wordpiece, ENCODER),
    "roberta": ("RobertaForMaskedLM", byte_bpe, ROBERTA),
}
HOLES = ["It was a [MASK] day.", "[MASK] old [MASK] sleeps", "мир [MASK]"]


def their_fillings(model: Any, words: Any, text: str, special: frozenset[int]) -> list[list[tuple[int, float]]]:
    """Return, for each mask, all tokens except special ones with their probabilities, likeliest first.

    The probabilities come from transformers' pipeline and are scaled so that they add up to 1.
    """
    pipe = transformers.pipeline("fill-mask", model=model, tokenizer=words, top_k=len(words), device="cpu")
    found = pipe(text.replace("[MASK]", words.mask_token))
    rows = [
        [(each["token"], each["score"]) for each in hole if each["token"] not in special]
        for hole in (found if isinstance(found[0], list) else [found])
    ]
    return [[(token, score / sum(share for _, share in row)) for token, score in row] for row in rows]


@pytest.fixture(scope="module")
def fillers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the Hugging Face models of all `FILLERS`; its folder `runs` contains the imported runs."""
    home = tmp_path_factory.mktemp("fillers")
    for name, (kind, words, values) in FILLERS.items():
        save(home / name, kind, words(), **values)
        import_model(home / name, home / "runs" / name, quiet)
    return home


@pytest.mark.parametrize("name", FILLERS)
def test_masks_are_filled_as_by_the_pipeline_without_special_tokens(name: str, fillers: Path) -> None:
    words = transformers.AutoTokenizer.from_pretrained(fillers / name)
    model = getattr(transformers, FILLERS[name][0]).from_pretrained(fillers / name).eval()
    run = OpenedRun.load(fillers / "runs" / name).text_model
    assert isinstance(run, MaskFiller)
    assert set(words.all_special_ids) == run.tokenizer.special
    for text in HOLES:
        assert run.ids(text) == words(text.replace("[MASK]", words.mask_token))["input_ids"]
        ours = run.fill(text, len(words))
        theirs = their_fillings(model, words, text, run.tokenizer.special)
        assert len(ours) == len(theirs) == text.count("[MASK]")
        for hole, wanted in zip(ours, theirs, strict=True):
            shares = {each.token: each.probability for each in hole if each.probability > 0}
            assert shares.keys() == dict(wanted).keys()
            assert max(abs(shares[token] - share) for token, share in wanted) <= 1e-5
            assert [each.token for each in hole][:5] == [token for token, _ in wanted][:5]


def test_rows_of_running_text_have_the_special_tokens_of_single_texts(fillers: Path, tmp_path: Path) -> None:
    from glassformer.interop.sklearn.fitting import record_store
    from glassformer.text.batches import validation_rows
    from glassformer.text.records import RECORD_KINDS

    run = OpenedRun.load(fillers / "runs" / "bert").text_model
    assert isinstance(run, MaskFiller)
    kind = RECORD_KINDS["masked"]
    whole = record_store(kind, (TEXTS[:2],), (), {"text": run.tokenizer}, (), tmp_path / "texts")
    store = whole.tokens["text"]
    rows = validation_rows(store, run.config.data, 40, run.tokenizer.start_id)
    words = transformers.AutoTokenizer.from_pretrained(fillers / "bert")
    assert [row.ids.tolist() for row in rows] == [words(text)["input_ids"] for text in TEXTS[:2]]


@pytest.mark.parametrize(("name", "architecture"), [("bert", "BertForMaskedLM"), ("roberta", "RobertaForMaskedLM")])
def test_an_imported_masked_model_is_exported_as_its_class(
    name: str, architecture: str, fillers: Path, tmp_path: Path
) -> None:
    report = export(ExportRequest(fillers / "runs" / name, tmp_path / "back", "best"))
    assert (report.architecture, report.notes) == (architecture, ())
    words = transformers.AutoTokenizer.from_pretrained(tmp_path / "back")
    model = getattr(transformers, architecture).from_pretrained(tmp_path / "back").eval()
    first = getattr(transformers, architecture).from_pretrained(fillers / name).eval()
    given = words(["It was a small day", "the sun"], return_tensors="pt", padding=True)
    with torch.no_grad():
        apart = (model(**given).logits - first(**given).logits).abs()[given["attention_mask"].bool()]  # (places, V)
    assert apart.max() <= 1e-5
    assert words.pad_token_id == transformers.AutoTokenizer.from_pretrained(fillers / name).pad_token_id


def test_a_roberta_without_padding_token_is_exported_as_bert(tmp_path: Path) -> None:
    save(tmp_path / "theirs", "RobertaForMaskedLM", byte_bpe(), **ROBERTA)
    for name in ("tokenizer_config.json", "special_tokens_map.json"):
        if (tmp_path / "theirs" / name).exists():
            values = json.loads((tmp_path / "theirs" / name).read_text(encoding="utf-8"))
            values.pop("pad_token", None)
            (tmp_path / "theirs" / name).write_text(json.dumps(values), encoding="utf-8")
    import_model(tmp_path / "theirs", tmp_path / "run", quiet)
    with pytest.raises(GlassError, match="padding token with the id 1"):
        export(ExportRequest(tmp_path / "run", tmp_path / "no", "best", architecture="roberta-masked"))
    report = export(ExportRequest(tmp_path / "run", tmp_path / "out", "best"))
    assert report.architecture == "BertForMaskedLM"
    assert "exported as bert" in report.notes[0]


def test_labels_are_read_from_the_first_special_token(tmp_path: Path) -> None:
    words = wordpiece()
    model = save(tmp_path / "theirs", "BertForTokenClassification", words, num_labels=3, **ENCODER)
    change_config(tmp_path / "theirs", summary_type="first")
    import_model(tmp_path / "theirs", tmp_path / "run", quiet)
    run = OpenedRun.load(tmp_path / "run").text_model
    assert isinstance(run, TextClassifier)
    with torch.no_grad():
        rows = [model(**words(text, return_tensors="pt")).logits[0, 0].softmax(-1) for text in TEXTS[:3]]  # (3) each
    assert torch.tensor(run.probabilities(TEXTS[:3])).allclose(torch.stack(rows).double(), atol=1e-6)
    assert [run.ids(text) for text in TEXTS[:3]] == words(TEXTS[:3])["input_ids"]
    long = "day " * 60
    assert run.ids(long) == words(long, truncation=True, max_length=41)["input_ids"]
    assert run.unread_tokens(long) == 60 - 39
    table = tmp_path / "texts.csv"
    lines = [f'"{text}",LABEL_{number % 3}' for number, text in enumerate([*TEXTS[:2], "day " * 40])]
    table.write_text("\n".join(["text,label", *lines]), encoding="utf-8")
    data = run.config.data.replace(source=str(table))
    store, _ = encoded("classify", data, (run.tokenizer, run.tokenizer), run.labels, tmp_path)
    assert [row.inputs.tolist() for row in labelled_rows(store, run.config)][:2] == words(TEXTS[:2])["input_ids"]
    assert count_too_long(store, run.config.model.context) == 1  # 40 tokens have room alone, and not in their frame


PAIR: dict[str, Any] = {
    "d_model": 30,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_ffn_dim": 37,
    "decoder_ffn_dim": 37,
    "encoder_attention_heads": 5,
    "decoder_attention_heads": 5,
    "max_position_embeddings": 41,
    "forced_eos_token_id": None,
}
BART: dict[str, Any] = {**PAIR, "bos_token_id": 0, "eos_token_id": 2, "decoder_start_token_id": 2}
SENTENCES: dict[str, Any] = {**PAIR, "eos_token_id": 1}
WRITERS: dict[str, tuple[str, Any, dict[str, Any], Frame, tuple[int, ...]]] = {
    "bart": ("BartForConditionalGeneration", byte_bpe, {**BART, "forced_bos_token_id": 0}, Frame((0,), (2,)), (2, 0)),
    "marian": (
        "MarianMTModel",
        lambda: unigram("$A </s>"),
        {**SENTENCES, "decoder_start_token_id": 0},
        Frame((), (1,)),
        (0,),
    ),
    "mbart": (
        "MBartForConditionalGeneration",
        lambda: unigram("$A </s> en_XX"),
        {**SENTENCES, "decoder_start_token_id": 4},
        Frame((), (1, 3)),
        (4,),
    ),
    "mbart-50": (
        "MBartForConditionalGeneration",
        lambda: unigram("en_XX $A </s>"),
        {**SENTENCES, "decoder_start_token_id": 1, "forced_bos_token_id": 4},
        Frame((3,), (1,)),
        (1, 4),
    ),
}


@pytest.mark.thorough
@pytest.mark.parametrize("name", WRITERS)
def test_texts_are_generated_with_the_ids_of_transformers(name: str, tmp_path: Path) -> None:
    kind, make, values, frame, start = WRITERS[name]
    words = make()
    model = save(tmp_path / "theirs", kind, words, **values)
    import_model(tmp_path / "theirs", tmp_path / "run", quiet)
    run = OpenedRun.load(tmp_path / "run").text_model
    assert isinstance(run, Translator)
    assert (run.frame, run.tokenizer.target_start) == (frame, start)
    prompts = ["the old dog sleeps", "It was", "3,141 days later, мир"]
    assert [run.prompt_ids(text) for text in prompts] == words(prompts)["input_ids"]
    for beams in (1, 3):
        settings = SampleConfig(tokens=17, temperature=0.0, beams=beams, length_penalty=0.0)
        limits = {"max_new_tokens": 17 + len(start) - 1, "do_sample": False, "num_beams": beams, "length_penalty": 0.0}
        for text in prompts:
            given = words(text, return_tensors="pt")
            found = model.generate(given["input_ids"], attention_mask=given["attention_mask"], **limits)[0].tolist()
            written = _ids(run, text, settings)
            assert [*start, *written] == found, (beams, text)
            assert run.generate([text], settings)[0].text.strip("\ufffd") == run.tokenizer.decode(found).strip("\ufffd")


def _ids(run: Translator, text: str, settings: SampleConfig) -> list[int]:
    if settings.beams > 1:
        start = run.tokenizer.target_start
        found = beam_search(run.model, [run.prompt_ids(text)], settings, run.tokenizer.end_id, wanted=1, start=start)
        return list(found[0][0].tokens)
    return [step.tokens[0] for step in run._steps([run.prompt_ids(text)], settings, lambda *_: False, None)]


def test_pairs_are_evaluated_with_special_tokens_and_exported(tmp_path: Path) -> None:
    kind, make, values, _, _ = WRITERS["mbart-50"]
    save(tmp_path / "theirs", kind, words := make(), **values)
    import_model(tmp_path / "theirs", tmp_path / "run", quiet)
    run = OpenedRun.load(tmp_path / "run").text_model
    assert isinstance(run, Translator)
    (tmp_path / "pairs.tsv").write_text("source\ttarget\nthe sun\tIt was\nday\tthe dog sleeps\n", encoding="utf-8")
    data = run.config.data.replace(source=str(tmp_path / "pairs.tsv"))
    store, _ = encoded("translate", data, (run.source_tokenizer, run.tokenizer), (), tmp_path)
    rows = list(pair_rows(store, run.config))
    assert [row.source.tolist() for row in rows] == words(["the sun", "day"])["input_ids"]
    plain = words(["It was", "the dog sleeps"], add_special_tokens=False)["input_ids"]
    assert [row.ids.tolist() for row in rows] == [[1, 4, *ids, 1] for ids in plain]
    report = export(ExportRequest(tmp_path / "run", tmp_path / "back", "best"))
    assert report.architecture == kind
    back = json.loads((tmp_path / "back" / "generation_config.json").read_text(encoding="utf-8"))
    assert (back["decoder_start_token_id"], back["forced_bos_token_id"], back["pad_token_id"]) == (1, 4, 0)
    import_model(tmp_path / "back", tmp_path / "again", quiet)
    again = OpenedRun.load(tmp_path / "again").text_model
    assert again.config.model == run.config.model
    assert again.tokenizer.digest == run.tokenizer.digest


def test_checkpoints_of_2019_are_read_completely(tmp_path: Path) -> None:
    """These files have other names for norms; their pooler and next-sentence head are ignored."""
    from safetensors.torch import load_file, save_file

    from glassformer.interop.huggingface.read_model import read_model

    save(tmp_path, "BertForMaskedLM", wordpiece(), **ENCODER)
    wanted = dict(read_model(tmp_path).model.state_dict())
    tensors = load_file(tmp_path / "model.safetensors")
    old = {
        name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): tensor
        for name, tensor in tensors.items()
    }
    old |= {"bert.pooler.dense.weight": torch.ones(30, 30), "bert.pooler.dense.bias": torch.ones(30)}
    old |= {"cls.seq_relationship.weight": torch.ones(2, 30), "cls.seq_relationship.bias": torch.ones(2)}
    save_file(old, tmp_path / "model.safetensors", {"format": "pt"})
    found = dict(read_model(tmp_path).model.state_dict())
    assert found.keys() == wanted.keys()
    assert all(torch.equal(found[name], wanted[name]) for name in wanted)


def test_a_head_with_a_pooler_is_refused_with_an_alternative(tmp_path: Path) -> None:
    save(tmp_path, "BertForSequenceClassification", wordpiece(), num_labels=3, **ENCODER)
    with pytest.raises(GlassError) as error:
        import_model(tmp_path, tmp_path / "run", quiet)
    assert "BertForSequenceClassification, whose head has a linear layer and tanh" in error.value.problem
    assert "BertForTokenClassification" in error.value.remedy
    assert not (tmp_path / "run").exists()
