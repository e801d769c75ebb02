"""The corpus and the probe senses: sentences, probabilities, nearest means, vectors of models."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest
import torch

from glassformer.base.config import Config, TokenizerConfig
from glassformer.base.errors import GlassError
from glassformer.corpora.senses import CUES, NAMES, SENSES, VERBS, WORD, WORDINGS, Senses, grammar
from glassformer.evaluation.probes.senses import classified, probe_senses, word_vectors
from glassformer.inspection.trace import trace
from glassformer.model.build import build_model
from glassformer.tasks import MaskFiller, TextModel
from glassformer.text.tokenizers import Tokenizer, train_tokenizer

CORPUS = Senses()
SENTENCES = list(CORPUS.sentences(5, seed=3))


def tokenizer_of(kind: str, mask: bool = False) -> Tokenizer:
    size = {"vocab_size": 300} if kind == "bpe" else {}
    settings = TokenizerConfig.model_validate({"kind": kind, **size})
    return train_tokenizer(settings, ["\n".join(CORPUS.documents(600, 0))], mask=mask)


def random_model(kind: str = "words", task: str = "lm", context: int = 90) -> TextModel | MaskFiller:
    shape = {"layers": 2, "heads": 2, "width": 16, "context": context, "positions": "rotary"}
    config = Config.from_dict({"model": shape, "data": {"windows": "documents"}, "train": {"task": task}})
    tokenizer = tokenizer_of(kind, mask=task == "masked")
    model = build_model(config.model, tokenizer.vocab_size, seed=1)
    return TextModel(model, tokenizer, config) if task == "lm" else MaskFiller(model, tokenizer, config)


def test_the_verb_follows_the_word_and_has_the_sense_of_the_cue() -> None:
    for text in CORPUS.documents(2000, seed=1):
        words = text.replace(",", "").replace(".", "").split()
        [cue] = [word for word in words if word in " ".join(CUES.values()).split()]
        verb = words[words.index(WORD) + 1]
        [sense] = [sense for sense in SENSES if cue in CUES[sense].split()]
        assert verb in VERBS[sense].split()
        assert words.index(cue) < words.index(WORD)
        assert words.count(WORD) == 1


def test_the_senses_share_no_cue_word_and_no_verb() -> None:
    words = " ".join([*CUES.values(), *VERBS.values(), NAMES]).split()
    assert len(set(words)) == len(words)
    assert len({len(CUES[sense].split()) for sense in SENSES}) == len({len(VERBS[s].split()) for s in SENSES}) == 1


def test_sentences_of_the_halves_share_only_words_without_sense() -> None:
    assert len(SENTENCES) == 5 * len(" ".join(CUES.values()).split())
    words: dict[tuple[str, int], set[str]] = {}
    frames: dict[tuple[str, int], list[str]] = {}
    for sentence in SENTENCES:
        assert CORPUS.log_probability(sentence.text) > -math.inf
        found = set(sentence.text.replace(",", "").replace(".", "").split())
        of_sense = found & {*CUES[sentence.sense].split(), *VERBS[sentence.sense].split()}
        assert len(of_sense) == 2
        words.setdefault((sentence.sense, sentence.half), set()).update(of_sense)
        frame = re.sub(rf"\b({'|'.join(of_sense)})\b", "…", sentence.text)
        frames.setdefault((sentence.sense, sentence.half), []).append(frame)
    assert len(words) == 4
    assert sum(map(len, words.values())) == len(set.union(*words.values()))  # the four sets are disjoint
    assert all(each == frames["river", 0] for each in frames.values())


def test_probabilities_of_all_documents_sum_to_one() -> None:
    texts = {
        wording.format(name="Mina", cue=cue, verb=verb)
        for wording in WORDINGS
        for sense in SENSES
        for cue in CUES[sense].split()
        for verb in VERBS[sense].split()
    }
    assert len(texts) == 6 * 48 * 8
    total = math.fsum(math.exp(CORPUS.log_probability(text)) for text in texts)
    assert total * len(NAMES.split()) == pytest.approx(1)
    assert all(len(grammar().derivations(text)) == 1 for text in texts)
    assert CORPUS.log_probability("Because of the flood, the old bank invested, Mina said.") == -math.inf


def test_vectors_that_show_the_sense_are_classified_right_and_others_by_chance() -> None:
    noise = np.random.default_rng(0).normal(size=(len(SENTENCES), 3))
    sense = np.array([[SENSES.index(sentence.sense)] for sentence in SENTENCES], dtype=np.float64)
    assert classified(np.hstack([noise, 50 * sense]), SENTENCES).value == 1.0
    same = classified(np.ones((len(SENTENCES), 3)), SENTENCES)
    assert (same.value, same.count) == (0.5, 48)
    of_halves = np.array([[(sentence.sense == "river") ^ sentence.half] for sentence in SENTENCES], dtype=np.float64)
    assert classified(of_halves, SENTENCES).value == 0.0  # right within a half, wrong in the other half
    one = np.array([[sentence.sense == "money" or sentence.cue == "flood"] for sentence in SENTENCES], dtype=np.float64)
    assert classified(one, SENTENCES).right == 47.0


@pytest.mark.parametrize("task", ["lm", "masked"])
def test_vectors_are_those_of_a_trace(task: str) -> None:
    model = random_model(task=task)
    rows = [model.tokenizer.encode(sentence.text) for sentence in SENTENCES[:40]]
    positions = [row.index(model.tokenizer.encode(f" {WORD}")[0]) for row in rows]
    found = word_vectors(model, rows, positions)
    for number, (row, position) in enumerate(zip(rows, positions, strict=True)):
        inputs = list(model.frame.around(row)) if isinstance(model, MaskFiller) else [model.tokenizer.start_id, *row]
        before = inputs.index(row[0], 1 if isinstance(model, TextModel) else 0)
        traced = trace(model.model, torch.tensor([inputs])).stack
        wanted = [traced.blocks[0].before, *(block.after for block in traced.blocks)]
        for layer, stream in enumerate(wanted):
            np.testing.assert_allclose(found[layer, number], stream[0, before + position].numpy(), atol=1e-4)


@pytest.mark.parametrize("kind", ["words", "bpe", "characters", "bytes"])
def test_the_embedding_and_the_words_alone_are_at_chance(kind: str) -> None:
    result = probe_senses(random_model(kind), 96, seed=2)
    assert [group.name for group in result.groups] == ["embedding", "after layer 0", "after layer 1"]
    assert result.groups[0].proportion.value == 0.5
    assert {group.proportion.count for group in result.groups} == {48}
    if kind == "words":
        assert result.groups[0].rules["shared words"] == 0.5


def test_a_run_without_the_word_or_with_a_short_context_is_refused() -> None:
    settings = TokenizerConfig.model_validate({"kind": "words"})
    tokenizer = train_tokenizer(settings, ["The old stories, it is said."])
    config = Config.from_dict({"model": {"layers": 1, "heads": 2, "width": 16}})
    without = TextModel(build_model(config.model, tokenizer.vocab_size), tokenizer, config)
    with pytest.raises(GlassError, match="'bank' is not in this run's vocabulary"):
        probe_senses(without, 48, seed=1)
    with pytest.raises(GlassError, match="this run reads at most 8"):
        probe_senses(random_model(context=8), 48, seed=1)
