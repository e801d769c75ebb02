"""Evaluation report of a chat run: loss and quality of its answers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from glassformer.evaluation.metrics import paired_tests
from glassformer.evaluation.pair_report import PairReport, figures_of, pair_metrics
from glassformer.tasks import ChatModel
from glassformer.tasks.example_tasks import last_question
from glassformer.text.record_store import RecordStore
from glassformer.training.validation import LossEstimate

SHOWN = 3
"""Maximum number of sample conversations in the report."""
COUNTED = 200_000
"""Maximum number of training conversations in which answers are counted to find the most frequent one."""


def chat_report(
    model: ChatModel,
    text: str,
    store: RecordStore,
    indices: Sequence[int],
    estimate: LossEstimate,
    train: RecordStore | None,
    other: ChatModel | None,
    notes: list[str],
) -> PairReport:
    """Generate the last answer of each chosen conversation, and compare it with the reference answer.

    Args:
        model: the run.
        text: name of the evaluation data, for the report.
        store: all conversations.
        indices: indices of the conversations whose last answer is generated.
        estimate: the loss over all answers, except in conversations left out because of `data.too_long`.
        train: training conversations, for the baseline "the most frequent answer"; None if not available.
        other: a second run to compare with; None: no comparison.
        notes: notes shown to the user.
    """
    questions_and_answers = [last_question(store, index) for index in indices]
    prompts = [ids for ids, _ in questions_and_answers]
    references = [model.tokenizer.decode(answer).strip() for _, answer in questions_and_answers]
    answers = _answers(model, prompts)
    metrics = pair_metrics(answers, references)
    against = None
    if other is not None:
        against = paired_tests(metrics, pair_metrics(_answers(other, prompts), references), len(prompts))
    sources = [model.decode_conversation(ids) for ids in prompts]
    questions = [source.rstrip().removesuffix(model.chat.before_answer).rstrip() for source in sources]
    baselines = {"the last words of the question": figures_of(_last_words(questions, references), references)}
    if train is not None:
        frequent_answer = most_frequent_answer(model, train)
        baselines["the most frequent answer"] = figures_of([frequent_answer] * len(references), references)
    return PairReport(
        measured_on=text,
        estimate=estimate,
        bits_per_byte=None,
        unknown_share=store.target.unknown_share,
        unknown_source_share=0.0,
        examples=len(prompts),
        metrics=metrics,
        baselines=baselines,
        samples=list(zip(sources, references, answers, strict=True))[:: max(1, len(prompts) // SHOWN)][:SHOWN],
        against=against,
        notes=notes,
        backend=model.backend,
        precision=model.precision,
        records="conversations",
    )


def most_frequent_answer(model: ChatModel, train: RecordStore) -> str:
    """Return the most frequent last answer in at most `COUNTED` training conversations."""
    count = min(len(train), COUNTED)
    indices = np.arange(count) * len(train) // count
    answers = Counter(tuple(last_question(train, int(number))[1]) for number in indices)
    return model.tokenizer.decode(list(answers.most_common(1)[0][0])).strip()


def _answers(model: ChatModel, conversations: Sequence[Sequence[int]]) -> list[str]:
    return [sample.text.strip() for sample in model.answers(conversations, model.config.sample)]


def _last_words(sources: Sequence[str], references: Sequence[str]) -> list[str]:
    """Return the last n words of each source, where n is the number of words in its reference."""
    endings = []
    for source, reference in zip(sources, references, strict=True):
        words = source.split()
        endings.append(" ".join(words[max(0, len(words) - len(reference.split())) :]))
    return endings
