"""Survey of the attention heads of a run, on its validation text, on another text, or on random tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from glassformer.base.config import PAIRS, Config
from glassformer.base.errors import GlassError
from glassformer.inspection.heads import HeadProbe, HeadSurvey, TokenFacts, survey
from glassformer.inspection.heads.probes import (
    punctuation_ids,
    random_probes,
    sentence_probe,
    special_ids,
    text_token_pool,
)
from glassformer.inspection.heads.texts import given_probe, held_out_probe, random_text, window_probe
from glassformer.inspection.heads.word_pairs import aligned_keys, learned_pairs
from glassformer.model.transformer import Classifier, Model
from glassformer.runs.opening import OpenedRun
from glassformer.tasks.make import make_task
from glassformer.text.prepare import Prepared
from glassformer.text.tokenizers import Tokenizer

COUNTED = 10_000_000
"""Maximum number of tokens of the training text that are counted for token frequencies."""


@dataclass(frozen=True)
class TextSample:
    """Texts to survey the heads on.

    Attributes:
        texts: one text, or the lines of a file.
        name: display name of the texts.
        lines: True for the lines of a file; a language model with `data.windows = "stream"` reads them as one text.
    """

    texts: Sequence[str]
    name: str
    lines: bool = False


def heads_of_run(opened: OpenedRun, sample: TextSample | None = None) -> HeadSurvey:
    """Measure the roles of all heads of a run.

    Args:
        opened: the run.
        sample: texts to survey the heads on; None: the run's validation text or, if it is not available, random tokens.

    Raises:
        GlassError: a given text is empty, too short, or longer than the context.
    """
    probe = None if sample is None else _text_probe(opened, sample)
    data = _training_data(opened if sample is None else replace(opened, note=lambda text: None))
    tokenizers = opened.source_tokenizer, opened.tokenizer
    return survey(opened.model, *probes_for(opened.model, opened.config, *tokenizers, data, probe))


def probes_for(
    model: Model,
    config: Config,
    source_tokenizer: Tokenizer,
    tokenizer: Tokenizer,
    data: Prepared | None,
    text: HeadProbe | None = None,
) -> tuple[list[HeadProbe], TokenFacts]:
    """Return the probes and token facts for `survey`.

    They do not depend on the weights, except for targets in `text` that the model generated.

    Args:
        model, config: model and configuration of the run.
        source_tokenizer, tokenizer: tokenizers of the input and of the output; the same if the run has only one
            tokenizer.
        data: prepared training data, or None if it is not available.
        text: probe to use instead of the run's validation text; None: its validation text or, if it is not available,
            random tokens.
    """
    counts = _counts(data, tokenizer.vocab_size)
    source_pool = text_token_pool(source_tokenizer, counts)
    target_pool = text_token_pool(tokenizer, counts)
    if text is None and data is not None:
        text = held_out_probe(make_task(config, data).held_out(None))
    if text is not None and text.targets is not None and data is not None:
        pairs = learned_pairs(data.train, special_ids(source_tokenizer), special_ids(tokenizer))
        text = replace(text, aligned=aligned_keys(pairs, text.rows, text.targets))
    probes = [text or random_text(model, source_pool, target_pool), *random_probes(model, source_pool, target_pool)]
    corpus = None if config.train.task in PAIRS else config.data.source
    start = isinstance(model, Classifier) or config.data.windows == "documents"
    sentences = sentence_probe(model, tokenizer, start, corpus)
    probes += [] if sentences is None else [sentences]
    return probes, TokenFacts(
        special_ids(tokenizer), special_ids(source_tokenizer), punctuation_ids(source_tokenizer), counts, corpus
    )


def _text_probe(opened: OpenedRun, sample: TextSample) -> HeadProbe:
    """Return the probe of given texts: windows of the joined lines of a file, or one text in each row."""
    running = opened.config.train.task in ("lm", "masked") and opened.config.data.windows == "stream"
    if sample.lines and running:
        return window_probe(opened.text_model, "\n".join(sample.texts), sample.name)
    return given_probe(opened.text_model, sample.texts, sample.name)


def _training_data(opened: OpenedRun) -> Prepared | None:
    """Return the prepared training data of the run, or None if it is not available."""
    try:
        return opened.data
    except GlassError as error:
        opened.note(f"using random tokens instead of text: {error.problem}")
        return None


def _counts(data: Prepared | None, size: int) -> npt.NDArray[np.int64] | None:
    """Count each id in the first `COUNTED` training tokens, (V,); None without data, or with separate source texts."""
    if data is None or len(data.train.tokens) > 1:
        return None
    return np.bincount(data.train.source.tokens[:COUNTED], minlength=size)
