"""High-level API: open, train or import a model, and use and inspect it through one object.

    import glassformer as gf

    model = gf.load("runs/book")
    model.attention("It was a day", layer=0, head=1)  # (T, S)

The docstrings of most methods name the library function that the method calls. Methods take one text at a time, except
`chat`, which takes a conversation, and `patch`, which takes two texts. Results have no batch axis, except those of
`record`. Letters in shapes (see `glassformer.base.shapes`): B batch size, T tokens, S keys or source tokens, V
vocabulary size, C labels, H heads.
"""

from __future__ import annotations

import copy
import json
import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor

from glassformer.backends.choosing import choose_engine
from glassformer.base.backends import BackendName
from glassformer.base.config import TASK_FACTS, Config
from glassformer.base.errors import GlassError, nearest
from glassformer.base.settings import UNSET
from glassformer.base.wording import counted, quoted
from glassformer.evaluation.token_losses import NOT_LEARNED, framed_ids, predict, surprisals
from glassformer.inspection.ablation import AblatedModel, ablatable, ablate, check_ablation
from glassformer.inspection.attribution.case import check_number, run_model
from glassformer.inspection.catalogue import catalogue
from glassformer.inspection.explain.subject import unshortened_subject_of
from glassformer.inspection.heads.of_run import TextSample, heads_of_run
from glassformer.inspection.heads.report import HeadSurvey
from glassformer.inspection.patching import Resample, patch, patchable
from glassformer.inspection.receipt import Receipt, write_receipt
from glassformer.inspection.recording import Recording, record
from glassformer.inspection.sites import advice_on_part, find_head
from glassformer.interop.huggingface import importing
from glassformer.launch.request import RunRequest, source_settings
from glassformer.launch.start import start_requested
from glassformer.model.device import choose_device
from glassformer.model.transformer import Model
from glassformer.runs.folder import Folder, Which
from glassformer.runs.opening import OpenedRun
from glassformer.tasks import (
    AnyTextModel,
    Candidate,
    ChatModel,
    Classified,
    MaskFiller,
    TextClassifier,
    TextModel,
    Translator,
    text_notes,
)
from glassformer.text.conversations import messages_of
from glassformer.text.tokenizers import Tokenizer
from glassformer.text.tokenizers.pieces import utf8
from glassformer.training.loop import train
from glassformer.training.memory import peak_memory
from glassformer.training.plan_file import record_outcome
from glassformer.training.thread_choice import thread_count_restored
from glassformer.verification.process_state import own_random_numbers

__all__ = ["TextTokens", "Transformer", "fit", "import_model", "load"]

MEAN_TOKENS = 4_096
"""Approximate number of targets in the held-out rows over which mean ablation averages."""


@dataclass(frozen=True, eq=False)
class TextTokens:
    """Token ids of the model's input for a text, and the printable text of each token.

    Attributes:
        ids: (T) token ids; for an encoder-decoder, those of the target.
        texts: printable text of each token, or the name of a special token.
        source: tokens of the source, for an encoder-decoder; None for other models.
    """

    ids: Tensor
    texts: tuple[str, ...]
    source: TextTokens | None = None

    def __len__(self) -> int:
        return len(self.texts)

    def __repr__(self) -> str:
        pairs = zip(self.texts, self.ids.tolist(), strict=True)
        summary = f"{counted(len(self), 'tokens')}: " + " ".join(f"{text!r}:{id}" for text, id in pairs)
        return summary if self.source is None else f"{summary}\nsource, {self.source!r}"


class Transformer:
    """Model with its tokenizer and task, opened by `load`, `fit` or `import_model`.

    Part names follow `glassformer.inspection.sites`, with layers and heads counted from 0. In the decoder's second
    block, `dec.1.self` is the self-attention, `dec.1.self.2` its third head, `dec.1.cross` the cross-attention, and
    `dec.1.feedforward` the feed-forward layer. Names of encoder parts begin with `enc.`. `parts` lists all parts that
    can be ablated.

    `target` is the target text of an encoder-decoder; the default is the text that the model generates greedily. In
    `loss` and `ablate`, an encoder-decoder requires `target`, and a classifier requires the label as `target`.
    Apart from this label, only encoder-decoders accept a `target`.

    Methods that take a text warn if it has characters or words that are not in the tokenizer's vocabulary, or are in it
    in another Unicode form.

    Attributes:
        run: the opened run, with its folder, settings, weights, task and held-out text.
    """

    def __init__(self, run: OpenedRun) -> None:
        self.run = run

    @property
    def folder(self) -> Path:
        """Path of the run folder."""
        return self.run.folder

    @property
    def text_model(self) -> AnyTextModel:
        """Model wrapper for the task: `TextModel`, `ChatModel`, `MaskFiller`, `TextClassifier` or `Translator`."""
        return self.run.text_model

    @property
    def model(self) -> Model:
        """PyTorch module: ids (B, T) -> logits (B, T, V), or (B, C) for a classifier.

        An encoder-decoder takes source ids (B, S) and target ids (B, T).
        """
        return self.run.model

    @property
    def tokenizer(self) -> Tokenizer:
        """Tokenizer of the text; for an encoder-decoder, tokenizer of the target."""
        return self.run.tokenizer

    @property
    def config(self) -> Config:
        """Settings of the run."""
        return self.run.config

    @property
    def parts(self) -> list[str]:
        """Names of all parts that can be ablated, in the order of the forward pass."""
        return ablatable(self.model)

    def __repr__(self) -> str:
        shape = self.config.model
        size = f"{counted(shape.layers, 'layers')}, {counted(shape.heads, 'heads')}, {shape.width} wide"
        task = self.config.train.task
        parameters = sum(parameter.numel() for parameter in self.model.parameters())
        return (
            f"Transformer from {self.folder}, {self.run.checkpoint.name}\n"
            f"  {shape.family}: {size}, context {shape.context}, {parameters:,} parameters on {self.run.device}\n"
            f"  task {task}: .{TASK_FACTS[task].method}(){self.run.trained_with}\n"
            f"  tokenizer: {self.tokenizer.description()}"
        )

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            if "run" not in vars(self):  # copy and pickle look up attributes before `run` is set
                raise AttributeError(name)
            task_methods = {facts.method for facts in TASK_FACTS.values()}
            task_method = TASK_FACTS[self.config.train.task].method
            public_names = [each for each in (*dir(type(self)), "run") if not each.startswith("_")]
            usable_names = [each for each in public_names if each == task_method or each not in task_methods]
            raise AttributeError(f"a Transformer has no attribute {name!r}. {nearest(name, usable_names)}")

    def tokens(self, text: str, target: str | None = None) -> TextTokens:
        """Return the tokens that the model reads for a text.

        Row i of `logits` belongs to token i, except in a classifier.

        Raises:
            GlassError: the text is empty, the text or `target` is longer than the context, or the task takes no
                `target`.
        """
        found = self._tokens(text, target)
        self._warn_of_symbols([text], target)
        return found

    def _tokens(self, text: str, target: str | None) -> TextTokens:
        """Return the tokens as `tokens` does, without warnings."""
        model = self.text_model
        _check_text(text)
        if isinstance(model, MaskFiller) and target is None and model.MASK not in text:  # inspect a text without masks
            ids = framed_ids(model, text)
            context = self.config.model.context
            if len(ids) > context:
                raise GlassError(
                    f"the text has {len(ids):,} tokens, but the model reads at most {context:,}", "Give a shorter text."
                )
            return _text_tokens(ids, model.tokenizer)
        subject = unshortened_subject_of(model, text, target, str(self.folder))
        if subject.target_ids is None or not isinstance(model, Translator):
            return _text_tokens(subject.ids, model.tokenizer)
        return _text_tokens(subject.target_ids, model.tokenizer, _text_tokens(subject.ids, model.source_tokenizer))

    def logits(self, text: str, target: str | None = None) -> Tensor:
        """Return the logits at each token, (T, V), on the CPU; for a classifier (C), one for each label.

        Calls `glassformer.inspection.attribution.case.run_model`.

        Raises:
            GlassError: `tokens` raises it, or the logits are not finite.
        """
        logits = run_model(self.model, *self._inputs(text, target))[0]  # (T, V) or (C)
        self._warn_of_symbols([text], target)
        return logits

    def loss(self, text: str, target: str | None = None) -> float:
        """Return the mean loss of a text in nats per token.

        Calls `glassformer.evaluation.token_losses.surprisals`. A decoder predicts every token except the first from the
        tokens before it. An encoder-decoder predicts every token of `target` and the end token. A masked model predicts
        each token, except special tokens, from the text in which that token is replaced by `[MASK]`. For a classifier,
        the result is the loss of the label `target`, in nats. An encoder-decoder reads only the beginning of a source
        that is longer than the context.

        Raises:
            GlassError: the text is empty or too short to have a loss; the text (for an encoder-decoder, `target`) is
                longer than the context or, for a masked model, than 512 tokens; `target` is missing or is not one of
                the classifier's labels, or the task takes no `target`; or the run is a chat model, whose loss is
                defined only for answers.
        """
        loss = self._loss(text, target)
        self._warn_of_symbols([text], target)
        return loss

    def generate(
        self,
        prompt: str,
        *,
        tokens: int | None = None,
        temperature: float | None = None,
        top_k: int | None = None,
        top_p: float | None = None,
        min_p: float | None = None,
        beams: int | None = None,
        seed: int | None = None,
        backend: BackendName = "torch",
    ) -> str:
        """Generate and return text: the continuation of a prompt, without the prompt, or the target of a source.

        Calls the method `generate` of `text_model`. Arguments that are None default to the run's settings
        (`config.sample`), including `seed`, so a repeated call returns the same text. Sampling arguments (temperature,
        top_k, top_p, min_p, seed) turn off beam search.

        Args:
            prompt: text to continue, translate or summarize, or a question to a chat model; a text to translate or
                summarize must not be empty.
            tokens: maximum number of generated tokens.
            temperature: sampling temperature; 0 means greedy decoding.
            top_k: sample only from the k likeliest tokens.
            top_p: sample only from the fewest likeliest tokens whose probabilities add up to at least this value.
            min_p: sample only from tokens with at least this fraction of the highest probability.
            beams: number of beams; more than 1 means beam search.
            seed: random seed of sampling.
            backend: library that computes the logits: "torch", "onnxruntime" or "onnxruntime-int8"; "auto" applies the
                rule in `glassformer.backends.choosing`.

        Raises:
            GlassError: the model does not generate text, the prompt is empty where this is not allowed, a setting is
                not allowed, a sampling argument was given with `beams` above 1, or the backend is not installed or
                cannot run the model.
        """
        model = self.text_model
        if not isinstance(model, TextModel | Translator):
            raise self._wrong_task("generate text")
        if prompt != "" or isinstance(model, Translator):  # a decoder accepts an empty prompt
            _check_text(prompt)
        self._warn_of_symbols([prompt])
        sampling = {"temperature": temperature, "top_k": top_k, "top_p": top_p, "min_p": min_p, "seed": seed}
        sampling_changes = {name: value for name, value in sampling.items() if value is not None}
        if sampling_changes and (beams or 1) > 1:
            raise GlassError(
                f"{next(iter(sampling_changes))} was given with beams = {beams}",
                f"Remove {next(iter(sampling_changes))}, or give beams=1: beam search does not sample.",
            )
        search = {"beams": 1} if sampling_changes else {} if beams is None else {"beams": beams}
        length = {} if tokens is None else {"tokens": tokens}
        settings = self.config.sample.replace(**sampling_changes, **search, **length)
        generator = copy.copy(model)  # `model` keeps no engine: other threads use it, and its weights may change
        generator.engine = choose_engine(backend, model.model, settings, texts=1)
        return generator.generate([prompt], settings)[0].text

    def fill(self, text: str, n: int = 5) -> list[list[Candidate]]:
        """Return the n likeliest tokens for each `[MASK]` of a text, excluding special tokens, and their probabilities.

        Calls `glassformer.tasks.MaskFiller.fill`.

        Raises:
            GlassError: the model is not a masked model, or the text has no `[MASK]` or is longer than the context.
        """
        if not isinstance(self.text_model, MaskFiller):
            raise self._wrong_task("fill in masks")
        candidates = self.text_model.fill(text, n)
        self._warn_of_symbols([text])
        return candidates

    def classify(self, text: str) -> Classified:
        """Return the likeliest label of a text, and the probability of every label.

        Calls `glassformer.tasks.TextClassifier.classify`, which reads only the beginning of a text that is longer than
        the context.

        Raises:
            GlassError: the model is not a classifier.
        """
        if not isinstance(self.text_model, TextClassifier):
            raise self._wrong_task("classify texts")
        classified = self.text_model.classify([text])[0]
        self._warn_of_symbols([text])
        return classified

    def chat(self, messages: str | Sequence[Mapping[str, Any]]) -> str:
        """Return the model's next answer in a conversation.

        Calls `glassformer.tasks.ChatModel.reply`.

        Args:
            messages: messages of the conversation, in a format that training reads, such as `role` and `content`; or
                one user message as a string.

        Raises:
            GlassError: the run is not a chat model and has no chat template, `messages` is not a sequence, a message is
                malformed, the template refuses the messages, or the conversation is longer than the context.
        """
        if isinstance(messages, str):
            messages = [{"role": "user", "content": messages}]
        if not isinstance(messages, Sequence):
            raise GlassError(
                f"the conversation must be a list of messages, got {type(messages).__name__}",
                'Write each message as {"role": "user", "content": "..."}.',
            )
        model = self.run.chat_model
        checked_messages = messages_of(list(messages), "the conversation") or []
        tokens = len(model.conversation_ids(checked_messages))
        if tokens > self.config.model.context:
            raise GlassError(
                f"the conversation has {tokens:,} tokens, but the model reads at most {self.config.model.context:,}",
                "Leave out the oldest messages.",
            )
        self._warn_of_symbols([message["content"] for message in checked_messages])
        return "".join(model.reply(checked_messages, self.config.sample)).strip()

    def attention(
        self,
        text: str,
        layer: int,
        head: int,
        *,
        part: Literal["self", "cross"] = "self",
        stack: Literal["enc", "dec"] | None = None,
        target: str | None = None,
    ) -> Tensor:
        """Return the attention pattern of one head, (T, S); each row is a distribution over the allowed keys.

        Calls `glassformer.inspection.recording.record`: the pattern is recorded in the model's forward pass.

        Args:
            text: input of the model.
            layer, head: indices from 0; pruning other heads does not change the index of a head.
            part: "self" for self-attention, "cross" for cross-attention of the decoder to the source.
            stack: "enc" or "dec" of an encoder-decoder; None: its decoder, or the only stack of other models.
            target: target text, for an encoder-decoder.

        Raises:
            GlassError: there is no such head, or `record` raises it.
        """
        site = f"{stack or list(self.model.stacks)[-1]}.{layer}.{part}"
        find_head(self.model, f"{site}.{head}")
        recording = record(self.model, *self._inputs(text, target), keep=(f"{site}.pattern",))
        self._warn_of_symbols([text], target)
        return recording[f"{site}.{head}.pattern"][0]  # (T, S)

    def record(
        self, text: str, keep: str | Sequence[str] = ("pattern", "resid"), target: str | None = None
    ) -> Recording:
        """Return named tensors of the forward pass, such as "dec.0.self.pattern", (1, H, T, S).

        Calls `glassformer.inspection.recording.record`; docs/trace.md lists the names and their TransformerLens
        equivalents.

        Args:
            text: input of the model.
            keep: tensors to return: names, such as "dec.1.resid", or kinds, such as "pattern", for all layers.
            target: target text, for an encoder-decoder.

        Raises:
            GlassError: there is no such kind or name, the recording would exceed its memory limit, or `tokens` raises
                it.
        """
        keep = (keep,) if isinstance(keep, str) or not isinstance(keep, Sequence) else keep
        recording = record(self.model, *self._inputs(text, target), keep=keep)
        self._warn_of_symbols([text], target)
        return recording

    def patch(self, text: str, part: str, other: str, *, at: int | None = None, target: str | None = None) -> Tensor:
        """Return the logits of a text, (T, V) or (C), with the activation of `part` taken from another text.

        Calls `glassformer.inspection.patching.patch` with `Resample`: activation patching (Vig et al. 2020).

        Args:
            text: the text whose logits are returned.
            part: a name from `glassformer.inspection.patching.patchable`: a head (its z), an attention or feed-forward
                layer (its output), or the residual stream before a block, such as "dec.1.resid".
            other: the text that provides the activation; the stack of `part` must read the same number of tokens for
                both texts.
            at: token whose activation is replaced, counted from 0; None: all tokens.
            target: target text for both texts, for an encoder-decoder; None: the target that the model generates for
                `text`.

        Raises:
            GlassError: there is no such part or token, the activation cannot be recorded, the two texts have different
                numbers of tokens, or `record` or `logits` raises it.
        """
        part_names = patchable(self.model)
        if part not in part_names:
            raise GlassError(
                f"this model has no activation {part!r} to patch", advice_on_part(self.model, part, part_names)
            )
        site, _, last = part.rpartition(".")
        activation = f"{site}.z" if last.isdigit() else part
        if activation not in catalogue(self.model):
            raise GlassError(
                f"{part} cannot be patched: its activation cannot be recorded",
                "Patch a head, an attention layer, a feed-forward layer or the residual stream.",
            )
        tokens = self._tokens(text, target)
        other_tokens = self._tokens(other, target)
        self._warn_of_symbols([text, other], target)
        if other_tokens.source is not None:  # use the target of the first text for both
            other_tokens = TextTokens(tokens.ids, tokens.texts, other_tokens.source)
        length = len(_stack_tokens(part, tokens))
        if length != len(_stack_tokens(part, other_tokens)):
            raise GlassError(
                f"the texts have {length} and {len(_stack_tokens(part, other_tokens))} tokens, "
                f"but patching {part} needs the same number",
                "Give texts with the same number of tokens: compare `model.tokens(text)` and `model.tokens(other)`.",
            )
        recording = record(self.model, *_model_inputs(other_tokens), keep=(activation,))
        where = None
        if at is not None:
            where = (torch.arange(length) == check_number("token", at, length))[None]  # (1, T)
        with patch(self.model, {part: Resample(recording, where=where)}):
            return run_model(self.model, *_model_inputs(tokens))[0]  # (T, V) or (C)

    def ablate(
        self,
        text: str,
        part: str | Sequence[str],
        target: str | None = None,
        instead: Literal["zero", "mean", "first", "frozen"] = "zero",
    ) -> float:
        """Return the increase of `loss` when parts are ablated, in nats per token; positive if the parts help.

        Calls `glassformer.inspection.ablation.ablate`.

        Args:
            text, target: as for `loss`.
            part: one or several names from `parts`.
            instead: replacement for the part's output: "zero"; "mean": the mean over rows of the run's held-out text
                with about 4,096 targets; "first", for heads and attention layers: attention to the first token only;
                "frozen": zero, with all other attention patterns unchanged. Positional encodings and the mask, if named
                in `part`, are always removed.

        Raises:
            GlassError: there is no such part, a part is named twice or does not support this replacement, the run's
                text is missing (for "mean"), or `loss` raises it.
        """
        ablation = check_ablation(
            self.model, (part,) if isinstance(part, str) or not isinstance(part, Sequence) else tuple(part), instead
        )
        rows = self.run.held_out(MEAN_TOKENS) if ablation.needs_means else None
        forward = ablate(self.model, ablation, rows)
        increase = self._loss(text, target, forward) - self._loss(text, target)
        self._warn_of_symbols([text], target)
        return increase

    def receipt(
        self,
        text: str,
        token: str | int | None = None,
        against: str | int | None = None,
        *,
        step: int = 1,
        hole: int = 1,
    ) -> Receipt:
        """Return the direct logit attribution of one token: its logit as the sum of the contributions of the parts.

        Calls `glassformer.inspection.receipt.write_receipt` (Elhage et al. 2021). In the result, `.parts` contains the
        contributions in logit units, `.total` is their sum, and `.logit` is the model's logit. `print` shows the result
        as a table.

        Args:
            text: the text before the token; depending on the task, a question to a chat model, a source, a text with
                `[MASK]`, or a text to classify.
            token: text or id of the token, or a label; None: the token that `generate` generates with the run's
                settings (for a chat model, `chat`), or the result of `fill` or `classify`.
            against: another token or label, whose logit is subtracted.
            step: number of the generated token to explain, counted from 1.
            hole: number of the `[MASK]`, counted from 1.

        Raises:
            GlassError: the model has no exact decomposition (it is post-norm, or has an activation before its output
                layer), the text is empty or too long, there is no such token, label or `[MASK]`, or `against` is the
                explained token or label.
        """
        receipt = write_receipt(self.text_model, text, token, against, step=step, hole=hole)
        self._warn_of_symbols([text])
        return receipt

    def heads(self, text: str | None = None) -> HeadSurvey:
        """Return the roles of all attention heads, with scores, chance levels and confidence intervals.

        Calls `glassformer.inspection.heads.of_run.heads_of_run`. `print` shows the result as a table.

        Args:
            text: text on which the heads are scored; None: the run's held-out text, or random tokens if it is missing.
                Some roles are always scored on random tokens.

        Raises:
            GlassError: the text is empty, too short, or longer than the context.
        """
        given_text = None
        if text is not None:
            _check_text(text)
            given_text = TextSample([text], "the given text")
        survey = heads_of_run(self.run, given_text)
        self._warn_of_symbols([] if text is None else [text])
        return survey

    def _warn_of_symbols(self, texts: Sequence[str], target: str | None = None) -> None:
        """Warn of symbols that are unknown, or known in another Unicode form, at the caller of the public method."""
        for note in text_notes(self.text_model, texts, [target]):
            warnings.warn(note, stacklevel=3)

    def _inputs(self, text: str, target: str | None) -> tuple[Tensor, Tensor | None]:
        return _model_inputs(self._tokens(text, target))

    def _loss(self, text: str, target: str | None, forward: AblatedModel | None = None) -> float:
        """Return the mean loss of a text; `forward`, if given, is called instead of the model."""
        model = self.text_model
        _check_text(text)
        if isinstance(model, TextClassifier):
            if target is None:
                raise GlassError("the loss of a classifier needs a label as target", nearest("", model.labels))
            label = model.output_id(target)
            probabilities = predict(model, unshortened_subject_of(model, text), forward).probabilities  # (C)
            return -float(probabilities[label].log())
        if isinstance(model, Translator) and target is None:
            raise GlassError("the loss of an encoder-decoder needs a target", "Give target=, the expected text.")
        if isinstance(model, ChatModel):
            raise GlassError(NOT_LEARNED, f"Measure the loss of its answers: glass evaluate {quoted(self.folder)}")
        mean = surprisals(model, text, target, forward).mean
        if mean is None:
            raise GlassError(f"no token of {text!r} is predicted, so the text has no loss", "Give a longer text.")
        return mean

    def _wrong_task(self, requested_task: str) -> GlassError:
        task = self.config.train.task
        return GlassError(
            f"{self.folder} was trained with train.task = {task}: to {TASK_FACTS[task].verb}, not to {requested_task}",
            f"Use .{TASK_FACTS[task].method}(), or a run of another task.",
        )


def load(
    run: Folder,
    checkpoint: Which = "best",
    device: str = "auto",
    precision: Literal["auto", "fp32", "bf16"] = "fp32",
) -> Transformer:
    """Load a run with its model, tokenizer and task.

    Args:
        run: folder of a run, made for example by `glass train`, `fit` or `import_model`.
        checkpoint: "best" (lowest validation loss) or "last".
        device: "auto", "cpu", "cuda", "cuda:N" or "mps".
        precision: precision of the weights; "auto": bf16 if it is faster on the device.

    Raises:
        GlassError: there is no such run, device or precision, or the files of the run are damaged.
    """
    return Transformer(OpenedRun.load(run, checkpoint, device, precision))


def fit(
    data: str | PathLike[str],
    target: str | PathLike[str] | None = None,
    *,
    task: str | None = None,
    minutes: float | None = None,
    steps: int | None = None,
    out: Folder | None = None,
    recipe: str | None = None,
    begin_from: Folder | None = None,
    settings: Mapping[str, Any] | None = None,
    progress: bool = False,
) -> Transformer:
    """Train a new run as `glass train` does, and load its best checkpoint.

    Ctrl-C stops training after the current step, saves the run, and raises KeyboardInterrupt. The thread count of
    torch is restored afterwards, and its random state does not change.

    Args:
        data: a text file (also .gz), a table (CSV, TSV, JSONL, Parquet or Arrow), a folder, or the name of a generated
            corpus.
        target: file with the targets, parallel to the sources in `data`.
        task: "lm", "masked", "classify", "translate", "summarize" or "chat"; None: the task of the run `begin_from`,
            the first task of a generated corpus, or else "lm".
        minutes: time limit in wall-clock minutes from the start of the call, including evaluations; if neither
            `minutes` nor `steps` is given, the limit of the recipe (10 minutes for the default recipes of the tasks) or
            of the generated corpus.
        steps: number of optimizer steps; without `minutes` and `recipe`, a repeated call on the same machine gives the
            same weights, bit for bit.
        out: new run folder; None: runs/NAME-OF-DATA.
        recipe: name of a recipe, a set of settings; None: "fine-tune" with `begin_from`, the settings of a generated
            corpus, or the default recipe of the task.
        begin_from: folder of a run to fine-tune, which provides the tokenizer, the model settings and the initial
            weights. If it is given without `recipe`, `minutes` and `steps`, the time limit is 3 minutes.
        settings: other settings by name, such as {"model.layers": 4, "train.seed": 1}.
        progress: whether to show a progress bar and notes on standard error. If not, warnings are still issued, for
            example if a classifier gets a new head.

    Raises:
        GlassError: the folder already contains a run, a setting is not allowed, or the data cannot be used.
    """
    began = time.monotonic()
    for name, value in (("data", data), ("target", target)):
        if value is not None and not isinstance(value, str | PathLike):
            remedy = (
                "Give a path, or for data the name of a corpus; for texts in memory, use glassformer.interop.sklearn."
            )
            if hasattr(value, "save_to_disk"):  # of the library datasets
                remedy = "Write it with its method save_to_disk(FOLDER), and give the folder."
            raise GlassError(f"{name} must be a path, got {type(value).__name__}", remedy)
    shortcuts = {"train.task": task, "train.minutes": minutes, "train.steps": steps}
    values = {**(settings or {}), **{name: value for name, value in shortcuts.items() if value is not None}}
    changes = {name: _setting_text(name, value) for name, value in values.items()}
    changes |= source_settings(fspath(data), None if target is None else fspath(target))
    folders = {"out": out, "begin_from": begin_from}
    request = RunRequest(
        changes, recipe, **{name: None if folder is None else Path(folder) for name, folder in folders.items()}
    )
    _refuse_run_at(request.folder)
    with thread_count_restored(), start_requested(request, began, quiet=not progress) as trainer:
        outcome = train(trainer)
    if outcome is None:
        raise KeyboardInterrupt
    run = trainer.run
    record_outcome(run, outcome, peak_memory(choose_device(trainer.config.train.device)))
    return load(run.folder, device=trainer.config.train.device)


def import_model(path: Folder, out: Folder | None = None) -> Transformer:
    """Import a model saved by Hugging Face transformers as a run, and load it.

    Calls `glassformer.interop.huggingface.importing.import_model`, which compares the result with transformers if that
    is installed. Nothing is downloaded.

    Args:
        path: folder with config.json, tokenizer.json, and model.safetensors or its shards.
        out: new run folder; None: runs/NAME-OF-FOLDER.

    Raises:
        GlassError: the folder cannot be read, the model uses a feature that glassformer cannot reproduce exactly, the
            logits differ from those of transformers, or `out` is not empty.
    """
    folder = Path("runs") / Path(path).resolve().name if out is None else Path(out)
    _refuse_run_at(folder)
    with own_random_numbers():  # transformers may initialize weights before it loads them
        importing.import_model(Path(path), folder, lambda text: None)
    return load(folder)


def _refuse_run_at(folder: Path) -> None:
    """Raise a `GlassError`, with a remedy for the Python API, if the folder contains a run."""
    if (folder / "config.toml").exists():
        advice = f"Open it with gf.load({fspath(folder)!r}), or give another folder as out."
        raise GlassError(f"{folder} already contains a run", advice)


def _setting_text(name: str, value: Any) -> str:
    """Return a setting's value in the syntax of `--set`."""
    if value is None:
        return UNSET
    try:
        return json.dumps(value, ensure_ascii=False)
    except TypeError:
        raise GlassError(
            f"{name} = {value!r} is not allowed", "Give a number, string, bool, None, or a list of strings."
        ) from None


def _check_text(text: str) -> None:
    """Raise a `GlassError` unless `text` is a non-empty string of valid Unicode."""
    utf8(text)
    if not text:
        raise GlassError("the text is empty", "Give a text of at least one token.")


def _text_tokens(ids: Sequence[int], tokenizer: Tokenizer, source: TextTokens | None = None) -> TextTokens:
    return TextTokens(torch.tensor(ids), tuple(map(tokenizer.token_text, ids)), source)


def _model_inputs(tokens: TextTokens) -> tuple[Tensor, Tensor | None]:
    """Return the inputs of a forward pass, with a batch axis: ids and None, or source ids and target ids."""
    if tokens.source is None:
        return tokens.ids[None], None  # (1, T)
    return tokens.source.ids[None], tokens.ids[None]  # (1, S), (1, T)


def _stack_tokens(part: str, tokens: TextTokens) -> TextTokens:
    """Return the tokens that the stack of a part reads."""
    return tokens.source if tokens.source is not None and part.startswith("enc.") else tokens
