"""The attention heads of a run, looked at on its own validation text, on another text, or on random tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from glassformer.base.config import PAIRS, Config
from glassformer.base.errors import GlassError
from glassformer.inspection.heads import HeadProbe, HeadSurvey, TokenFacts, survey
from glassformer.inspection.heads.probes import marks, random_probes, sentence_probe, special_ids, vocabulary
from glassformer.inspection.heads.texts import given_probe, held_out_probe, random_text, window_probe
from glassformer.model.transformer import Classifier, Model
from glassformer.runs.opening import OpenedRun
from glassformer.tasks.make import make_task
from glassformer.text.prepare import Prepared
from glassformer.text.tokenizers import Tokenizer

COUNTED = 10_000_000
"""Tokens of the training text that are counted to know which are frequent."""


@dataclass(frozen=True)
class Given:
    """Texts to look at the heads on.

    Attributes:
        texts: one, or the lines of a file.
        name: what they are called.
        lines: whether they are the lines of a file; a run on running text reads these as one text.
    """

    texts: Sequence[str]
    name: str
    lines: bool = False


def heads_of_run(opened: OpenedRun, given: Given | None = None) -> HeadSurvey:
    """Return the roles of all heads of a run.

    Args:
        opened: the run.
        given: texts to look at the heads on; None: the run's own.

    Raises:
        GlassError: a text is empty, or longer than the context.
    """
    probe = None if given is None else _given(opened, given)
    data = _own_text(opened if given is None else replace(opened, note=lambda text: None))
    tokenizers = opened.source_tokenizer, opened.tokenizer
    return survey(opened.model, *probes_for(opened.model, opened.config, *tokenizers, data, probe))


def probes_for(
    model: Model,
    config: Config,
    reader: Tokenizer,
    tokenizer: Tokenizer,
    data: Prepared | None,
    text: HeadProbe | None = None,
) -> tuple[list[HeadProbe], TokenFacts]:
    """Return the probes on which `survey` looks at the heads of a run: always the same, whatever the weights.

    Args:
        model, config: of the run.
        reader, tokenizer: of what it reads and of what it writes; the same where there is only one.
        data: what it learnt from, if that is at hand.
        text: instead of the run's own.
    """
    counts = _counts(data, tokenizer.vocab_size)
    source = vocabulary(reader, counts)
    target = vocabulary(tokenizer, counts)
    if text is None and data is not None:
        text = held_out_probe(make_task(config, data).held_out(None))
    probes = [text or random_text(model, source, target), *random_probes(model, source, target)]
    corpus = None if config.train.task in PAIRS else config.data.source
    start = isinstance(model, Classifier) or config.data.windows == "documents"
    sentences = sentence_probe(model, tokenizer, start, corpus)
    probes += [] if sentences is None else [sentences]
    return probes, TokenFacts(special_ids(tokenizer), special_ids(reader), marks(reader), counts, corpus)


def _given(opened: OpenedRun, given: Given) -> HeadProbe:
    """Return windows of running text, or one text in each row."""
    running = opened.config.train.task in ("lm", "masked") and opened.config.data.windows == "stream"
    if given.lines and running:
        return window_probe(opened.text_model, "\n".join(given.texts), given.name)
    return given_probe(opened.text_model, given.texts, given.name)


def _own_text(opened: OpenedRun) -> Prepared | None:
    """Return the text that the run learnt from, if it is at hand."""
    try:
        return opened.data
    except GlassError as error:
        opened.note(f"looking at random tokens instead of text: {error.problem}")
        return None


def _counts(data: Prepared | None, size: int) -> npt.NDArray[np.int64] | None:
    """Count each token of the training text, (V,); None where it is not at hand, or is two texts."""
    if data is None or len(data.train.tokens) > 1:
        return None
    return np.bincount(data.train.source.tokens[:COUNTED], minlength=size)
