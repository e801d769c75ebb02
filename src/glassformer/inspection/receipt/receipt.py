"""`Receipt`: one logit of a run, split into contributions, and the choice of the token made from all logits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from glassformer.base.config import LABELLED, Config, SampleConfig
from glassformer.base.errors import GlassError
from glassformer.base.wording import counted, in_quotes
from glassformer.inspection.receipt.draw import Draw, RaceEntry, SamplingStage
from glassformer.inspection.receipt.explained_prediction import (
    ExplainedPrediction,
    predict_label,
    predict_mask,
    predict_next_token,
)
from glassformer.inspection.receipt.parts import CROSS, LogitPart, refuse_inexact, split_logit, total
from glassformer.inspection.trace import trace
from glassformer.tasks import AnyTextModel, MaskFiller, TextClassifier, Translator
from glassformer.text.tokenizers import Tokenizer

RUNNERS = 10  # maximum number of tokens of the race that `facts` lists


@dataclass(frozen=True)
class Receipt:
    """Split of the logit of one token or class into the contributions of all parts of the model.

    Attributes:
        config: configuration of the run.
        text: the given text.
        prediction: the model's input, its logits and the choice.
        token: token or class of the logit.
        against: token or class whose logit is subtracted; None: no logit is subtracted.
        parts: contributions, in the order of the model.
        logit: logit of the forward pass, minus that of `against` if given; it equals the sum of the parts, up to
            rounding.
        names: function from an output id to the text of the token, or to the label.
        read, source: texts of the tokens in `prediction.read` and in `prediction.source`.
    """

    config: Config
    text: str
    prediction: ExplainedPrediction
    token: int
    against: int | None
    parts: tuple[LogitPart, ...]
    logit: float
    names: Callable[[int], str]
    read: tuple[str, ...]
    source: tuple[str, ...] | None

    def __repr__(self) -> str:
        return table(self)

    @property
    def total(self) -> float:
        """Return the sum of the parts."""
        return total(self.parts)

    def ranked(self) -> list[tuple[LogitPart, float]]:
        """Return the parts, largest absolute value first, each with its fraction of the sum of absolute values."""
        total_size = sum(abs(part.value) for part in self.parts)
        order = sorted(self.parts, key=lambda part: -abs(part.value))
        return [(part, abs(part.value) / total_size if total_size else 0.0) for part in order]

    def by_source(self, cross: bool = False) -> list[float]:
        """Return the total contribution that comes from each token of the row, or of the source if `cross` is True."""
        rows = [part.sources for part in self.parts if part.sources is not None and (part.kind == CROSS) == cross]
        return [sum(column) for column in zip(*rows, strict=True)]

    def facts(self) -> dict[str, Any]:
        """Return the receipt as a JSON-serializable dict."""
        ids = self.prediction.read
        memory = self.prediction.source
        return {
            "text": self.text,
            "task": self.config.train.task,
            "token": {"id": self.token, "text": self.names(self.token)},
            "against": None if self.against is None else {"id": self.against, "text": self.names(self.against)},
            "logit": self.logit,
            "sum": self.total,
            "difference": self.total - self.logit,
            "places": list(self.prediction.positions),
            "parts": [
                {
                    "name": part.name,
                    "kind": part.kind,
                    "layer": part.layer,
                    "head": part.head,
                    "value": part.value,
                    "share": fraction,
                    "sources": part.sources,
                }
                for part, fraction in self.ranked()
            ],
            "unread": self.prediction.unread,
            "read": _token_facts(ids, self.read, self.by_source()),
            "source": None if memory is None else _token_facts(memory, self.source or (), self.by_source(cross=True)),
            "draw": self._draw_facts(self.prediction.draw),
        }

    def _draw_facts(self, draw: Draw) -> dict[str, Any]:
        listed_tokens = dict.fromkeys([draw.token, self.token, *([] if self.against is None else [self.against])])
        return {
            "how": draw.how,
            "token": {"id": draw.token, "text": self.names(draw.token)},
            "step": draw.step,
            "seed": draw.seed if draw.how == "drawn" else None,
            "stages": [
                {
                    "filter": stage.filter,
                    "setting": stage.setting,
                    "left": stage.left,
                    "probabilities": [
                        {"id": id, "text": self.names(id), "probability": float(stage.probabilities[id])}
                        for id in listed_tokens
                    ],
                }
                for stage in draw.stages
            ],
            "race": [{**vars(runner), "text": self.names(runner.token)} for runner in draw.runners[:RUNNERS]],
        }


def write_receipt(
    model: AnyTextModel,
    text: str,
    token: str | int | None = None,
    against: str | int | None = None,
    settings: SampleConfig | None = None,
    step: int = 1,
    hole: int = 1,
) -> Receipt:
    """Split the logit of a token or class into the contributions of all parts of the model.

    Args:
        model: text model of a run of any task.
        text: prompt, source text, text with [MASK], or text to classify.
        token: token (text or id) or label to explain; None: the choice of the model.
        against: token or label whose logit is subtracted; None: no logit is subtracted.
        settings: sampling settings; None: those of the run. Only runs that generate text use them.
        step: number of the generated token, from 1.
        hole: number of the `[MASK]` in the text, from 1.

    Raises:
        GlassError: the logits have no exact split, the text is empty or does not fit, there is no such generated token
            or [MASK], a named token or label does not exist, or `against` is the explained token or label.
    """
    refuse_inexact(model.model)
    if not text:
        raise GlassError("the text is empty: there is nothing to explain", "Give a text.")
    if isinstance(model, TextClassifier):
        prediction = predict_label(model, text)
    elif isinstance(model, MaskFiller):
        prediction = predict_mask(model, text, hole)
    else:
        prediction = predict_next_token(model, text, settings or model.config.sample, step)
    token_id = prediction.draw.token if token is None else model.output_id(token)
    against_id = None if against is None else model.output_id(against)
    if against_id == token_id:
        problem = f"{against!r} is the explained token or label itself: there is nothing to compare"
        raise GlassError(problem, "Name another token or label.")
    difference = prediction.logits[token_id].double() - (
        0.0 if against_id is None else prediction.logits[against_id].double()
    )
    return Receipt(
        config=model.config,
        text=text,
        prediction=prediction,
        token=token_id,
        against=against_id,
        parts=tuple(_parts(model, prediction, token_id, against_id)),
        logit=float(difference),
        names=model.output_text,
        read=_texts(model.tokenizer, prediction.read),
        source=_texts(model.source_tokenizer, prediction.source or ()) if isinstance(model, Translator) else None,
    )


def _parts(model: AnyTextModel, prediction: ExplainedPrediction, token: int, against: int | None) -> list[LogitPart]:
    input_ids = torch.tensor([prediction.read])  # (1, T)
    if prediction.source is None:
        forward_trace = trace(model.model, input_ids)
    else:
        forward_trace = trace(model.model, torch.tensor([prediction.source]), input_ids)
    return split_logit(model.model, forward_trace, prediction.positions, token, against)


def _texts(tokenizer: Tokenizer, ids: Sequence[int]) -> tuple[str, ...]:
    return tuple(tokenizer.token_text(id) for id in ids)


def _token_facts(ids: Sequence[int], texts: Sequence[str], values: Sequence[float]) -> list[dict[str, Any]]:
    rows = enumerate(zip(ids, texts, values, strict=True))
    return [{"place": position, "id": id, "text": text, "value": value} for position, (id, text, value) in rows]


BAR = 24  # characters of the longest bar
SOURCES = 6  # maximum number of tokens in a list of contributions by token
SHOWN = 5  # maximum number of tokens whose probabilities after each filter are shown


def table(receipt: Receipt, top: int = 12) -> str:
    """Format the receipt as text.

    Args:
        receipt: the receipt.
        top: maximum number of parts to list one by one; the others are summed up in one line.
    """
    return "\n".join(
        [
            *_heading_lines(receipt),
            "",
            *_part_lines(receipt, top),
            "",
            *_source_lines(receipt),
            "",
            *_draw_lines(receipt),
        ]
    )


def _heading_lines(receipt: Receipt) -> list[str]:
    prediction = receipt.prediction
    chosen = receipt.prediction.draw.token
    what = "label" if receipt.config.train.task in LABELLED else "token"
    lines = [f"{what} {_quoted(receipt, receipt.token)}: logit {receipt.logit:.6f}"]
    if receipt.against is not None:
        pair = f"{_quoted(receipt, receipt.token)} against {_quoted(receipt, receipt.against)}"
        lines = [f"{what} {pair}: difference of their logits {receipt.logit:.6f}"]
    if receipt.token != chosen:
        lines.append(f"the model itself chooses {_quoted(receipt, chosen)}")
    if prediction.unread:
        unread = counted(prediction.unread, "tokens of the text are", "token of the text is")
        lines.append(f"{unread} not read: the model reads at most {receipt.config.model.context:,}")
    return lines


def _part_lines(receipt: Receipt, top: int) -> list[str]:
    ranked = receipt.ranked()
    listed = ranked[:top]
    others = ranked[top:]
    width = max(len(part.name) for part, _ in listed)
    largest = abs(listed[0][0].value) or 1.0
    lines = [f"{'part':<{width}}  {'value':>10}   share"]
    for part, fraction in listed:
        bar = "█" * round(BAR * abs(part.value) / largest)
        row = f"{part.name:<{width}}  {part.value:>+10.4f}  {fraction:>6.1%}  {bar:<{BAR}}{_main_source(receipt, part)}"
        lines.append(row.rstrip())
    if others:
        other_value = sum(part.value for part, _ in others)
        fraction = sum(fraction for _, fraction in others)
        lines.append(f"{counted(len(others), 'others'):<{width}}  {other_value:>+10.4f}  {fraction:>6.1%}")
    logit_name = "logit" if receipt.against is None else "difference of logits"
    difference = receipt.total - receipt.logit
    return [*lines, f"sum of parts {receipt.total:.6f} = {logit_name} {receipt.logit:.6f}, difference {difference:.1e}"]


def _main_source(receipt: Receipt, part: LogitPart) -> str:
    """Return a note on the token that contributes most to a head's part of the logit; "" for other parts."""
    if part.head is None or part.sources is None:
        return ""
    value, position = max(
        ((value, position) for position, value in enumerate(part.sources)), key=lambda each: abs(each[0])
    )
    texts = receipt.source if part.kind == CROSS and receipt.source is not None else receipt.read
    return f"  most from {in_quotes(texts[position])} at {position}: {value:+.4f}"


def _source_lines(receipt: Receipt) -> list[str]:
    """Return the lines on the contributions that come from each token, through heads and embeddings."""
    lines = _contribution_lines(
        "contributions by token, through all heads and embeddings", receipt.by_source(), receipt.read
    )
    if receipt.source is not None:
        title = "contributions by token of the source, through all cross-attention heads"
        lines += _contribution_lines(title, receipt.by_source(cross=True), receipt.source)
    without_source = sum(part.value for part in receipt.parts if part.sources is None)
    return [*lines, f"{without_source:>+10.4f}  feed-forward layers and biases, which have no source token"]


def _contribution_lines(title: str, values: Sequence[float], texts: Sequence[str]) -> list[str]:
    order = sorted(range(len(values)), key=lambda position: -abs(values[position]))[:SOURCES]
    others = len(values) - len(order)
    other_value = sum(values) - sum(values[position] for position in order)
    return [
        title,
        *(f"{values[position]:>+10.4f}  {in_quotes(texts[position])} at {position}" for position in order),
        *([f"{other_value:>+10.4f}  {counted(others, 'others')}"] if others else []),
    ]


def _draw_lines(receipt: Receipt) -> list[str]:
    draw = receipt.prediction.draw
    likeliest = draw.stages[0].probabilities.sort(descending=True, stable=True).indices[:SHOWN].tolist()
    named_tokens = [draw.token, receipt.token, *([] if receipt.against is None else [receipt.against])]
    columns = list(dict.fromkeys([*named_tokens, *likeliest]))[:SHOWN]
    heads = [in_quotes(receipt.names(token)) for token in columns]
    widths = [max(9, len(head)) for head in heads]
    lines = [f"{'probability':<26}" + "".join(f"  {h:>{w}}" for h, w in zip(heads, widths, strict=True)) + "    left"]
    for stage in draw.stages:
        cells = [f"{float(stage.probabilities[token]):.4%}" for token in columns]
        row = "".join(f"  {cell:>{w}}" for cell, w in zip(cells, widths, strict=True))
        lines.append(f"{_stage_name(stage):<26}{row}  {stage.left:>6,}")
    return [*lines, *_choice_lines(receipt, draw)]


def _stage_name(stage: SamplingStage) -> str:
    if stage.filter is None:
        return "no filter"
    name = stage.filter.replace("_", " ")
    return name if stage.setting is None else f"{name} {stage.setting:g}"


def _choice_lines(receipt: Receipt, draw: Draw) -> list[str]:
    if draw.how == "likeliest":
        return [f"chosen: {_quoted(receipt, draw.token)}, the likeliest; nothing is random"]
    if draw.how == "beam search":
        return [f"chosen: {_quoted(receipt, draw.token)}, by beam search for the likeliest text; nothing is random"]
    named_tokens = [receipt.token, *([] if receipt.against is None else [receipt.against])]
    runners = dict.fromkeys([*draw.runners[:2], *(runner for token in named_tokens if (runner := draw.runner(token)))])
    return [
        f"sampled with seed {draw.seed}, generated token {draw.step}: each token draws an exponential waiting time, "
        "its random number / its probability; the shortest wins",
        *(_race_line(receipt, draw, runner) for runner in runners),
    ]


def _race_line(receipt: Receipt, draw: Draw, runner: RaceEntry) -> str:
    rank = draw.runners.index(runner) + 1
    first = ": sampled" if rank == 1 else ""
    name = in_quotes(receipt.names(runner.token))
    times = f"{runner.number:.6g} / {runner.probability:.6g}"
    return f"{rank:>4,}.  {name} arrives after {times} = {runner.arrival:.6g}{first}"


def _quoted(receipt: Receipt, token: int) -> str:
    return f"{in_quotes(receipt.names(token))} ({token})"
