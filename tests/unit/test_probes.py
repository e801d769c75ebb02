"""Probes of perfect, heuristic and indifferent models, and files of user-provided pairs."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from itertools import combinations, pairwise
from pathlib import Path

import numpy as np
import pytest
import torch

from glassformer.base.config import TOKENIZER_KINDS, Config, TokenizerConfig
from glassformer.base.errors import GlassError
from glassformer.corpora import MinimalPair, find_text_corpus
from glassformer.corpora.brackets import DISTANCES, Brackets, closes, draw_word, endings, last_opened
from glassformer.corpora.corpus import generator
from glassformer.evaluation.minimal_pairs import TokenScores
from glassformer.evaluation.ngrams import KneserNey
from glassformer.evaluation.probes import pairs as pair_probes
from glassformer.evaluation.probes import sequences
from glassformer.evaluation.probes.heuristics import HEURISTICS, numbers_of_nouns
from glassformer.evaluation.probes.own_pairs import read_pairs
from glassformer.evaluation.probes.pairs import ABOUT, corpus_pairs, probe_pairs
from glassformer.evaluation.probes.result import Group
from glassformer.evaluation.probes.row_probabilities import (
    RowScores,
    as_written,
    max_row_tokens,
    score_rows,
    scored,
    token_scores,
)
from glassformer.evaluation.probes.surprisal import seen_earlier, surprisal
from glassformer.evaluation.probes.token_counts import TokenCounts
from glassformer.model.build import build_model
from glassformer.tasks import MaskFiller, TextModel
from glassformer.text.tokenizers import Tokenizer, train_tokenizer
from tests.unit import agreement_rules as exact

SIZES = {"agreement": 640, "coreference": 400, "pronouns-bn": 400, "brackets": 400}


def text_model(tokenizer: Tokenizer, zero: bool = False, context: int = 41, windows: str = "documents") -> TextModel:
    """Return a tiny decoder with random weights; with `zero`, all tokens are equally likely everywhere."""
    shape = {"layers": 1, "heads": 2, "width": 14, "context": context}
    config = Config.from_dict({"model": shape, "data": {"windows": windows}})
    model = build_model(config.model, tokenizer.vocab_size, seed=1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(0.0 if zero else 3.0)
    return TextModel(model, tokenizer, config)


def mask_filler(tokenizer: Tokenizer, windows: str) -> MaskFiller:
    shape = {"layers": 1, "heads": 2, "width": 14, "context": 29}
    config = Config.from_dict({"model": shape, "data": {"windows": windows}, "train": {"task": "masked"}})
    return MaskFiller(build_model(config.model, tokenizer.vocab_size, seed=1), tokenizer, config)


def tokenizer_of(name: str, mask: bool = False) -> Tokenizer:
    """Return the tokenizer of a run on this corpus."""
    corpus = find_text_corpus(name)
    kind = corpus.recommended("lm")["tokenizer.kind"]
    return train_tokenizer(
        TokenizerConfig.model_validate({"kind": kind}), ["\n".join(corpus.documents(900, 0))], mask=mask
    )


def known_of(name: str, tokenizer: Tokenizer) -> TokenCounts:
    rows = tokenizer.encode_many(list(find_text_corpus(name).documents(300, 0)))
    stream = np.concatenate([[*row, tokenizer.end_id] for row in rows])
    return TokenCounts(stream, tokenizer.vocab_size, tokenizer.text_ids)


def probed(name: str, model: TextModel, known: TokenCounts | None = None) -> dict[str, Group]:
    pairs = corpus_pairs(name, SIZES[name], seed=3)
    result = probe_pairs(name, ABOUT[name], pairs, model, known)
    return {group.name: group for group in result.groups}


def judging(judge: Callable[[MinimalPair], float], name: str) -> Callable[..., list[TokenScores]]:
    """Return a replacement for `token_scores`: a good text scores `judge(pair)`, and a bad text scores 0."""
    scores: dict[str, float] = {}
    for pair in corpus_pairs(name, SIZES[name], seed=3):
        scores[pair.good] = judge(pair)
        scores[pair.bad] = 0.0

    def model(_: object, texts: Sequence[str]) -> list[TokenScores]:
        return [[(1, -5.0), (len(text), scores[text])] for text in texts]

    return model


@pytest.mark.parametrize("name", SIZES)
def test_a_perfect_oracle_is_right_in_every_group(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pair_probes, "token_scores", judging(lambda pair: 2.0, name))
    groups = probed(name, text_model(tokenizer_of(name)))
    assert {group.proportion.value for group in groups.values()} == {1.0}
    wanted = {
        "agreement": {"SS", "SP", "PS", "PP", *(f"{c}, {n} attractors" for c in ("SP", "PS") for n in (2, 3, 4))},
        "coreference": {"animal", "thing"},
        "pronouns-bn": {"subject first", "object first"},
        "brackets": {"distance 0", "distance 22 to 36"},
    }[name]
    assert wanted <= groups.keys()
    assert groups["all pairs"].proportion.count == SIZES[name]


def test_a_last_noun_oracle_is_right_in_half_of_the_cells(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pair_probes, "token_scores", judging(HEURISTICS["agreement"]["last noun"], "agreement"))
    groups = probed("agreement", text_model(tokenizer_of("agreement")))
    shares = {name: group.proportion.value for name, group in groups.items()}
    assert [shares[cell] for cell in ("SS", "PP", "SP", "PS")] == [1.0, 1.0, 0.0, 0.0]
    assert shares["all pairs"] == 0.5
    assert shares["twins, all right"] == 0.0
    assert all(share == 0 for name, share in shares.items() if "attractor" in name)


@pytest.mark.parametrize(
    ("name", "twins"), [("agreement", 1 / 16), ("coreference", 1 / 4), ("pronouns-bn", 1 / 16), ("brackets", None)]
)
def test_a_uniform_model_is_exactly_at_chance(name: str, twins: float | None) -> None:
    groups = probed(name, text_model(tokenizer_of(name), zero=True))
    assert all(group.proportion.value == group.chance for group in groups.values())
    assert {group.chance for name, group in groups.items() if not name.startswith("twins")} == {0.5}
    assert groups["twins, all right"].chance == twins if twins else "twins, all right" not in groups


def test_heuristics_of_agreement_have_their_computed_accuracies() -> None:
    groups = probed("agreement", text_model(tokenizer_of("agreement")))
    wanted = {"last noun": exact.last_noun(), "first noun": exact.first_noun(), "majority": exact.majority()}
    for rule, by_cell in wanted.items():
        assert {cell: groups[cell].rules[rule] for cell in by_cell} == by_cell
    assert numbers_of_nouns("Near the doors, the box next to the pilots falls.") == "PSP"


def test_heuristics_of_the_other_corpora_are_measured() -> None:
    told = probed("coreference", text_model(tokenizer_of("coreference")))
    assert (told["animal"].rules["animal"], told["thing"].rules["animal"]) == (1.0, 0.0)
    for rule in ("last noun", "first noun", "animal"):
        assert told["all pairs"].rules[rule] == 0.5  # of each twin exactly one pair
        assert told["twins, all right"].rules[rule] == 0.0
    assert told["animal"].rules["first noun"] == pytest.approx(1 - told["animal"].rules["last noun"])
    assert {group.rules["word list"] for group in told.values()} == {1.0}
    pronouns = probed(
        "pronouns-bn", text_model(tokenizer_of("pronouns-bn")), known_of("pronouns-bn", tokenizer_of("pronouns-bn"))
    )
    assert set(pronouns["all pairs"].rules.values()) == {0.5}
    assert pronouns["subject first"].rules["first pronoun"] == pronouns["object first"].rules["last pronoun"] == 1.0
    closed = probed("brackets", text_model(tokenizer_of("brackets")))
    assert closed["distance 0"].rules["last opened"] == 1.0
    assert closed["distance 22 to 36, 1 attractor"].rules["last opened"] == 0.0


def test_frequency_baselines_use_the_training_text() -> None:
    tokenizer = tokenizer_of("agreement")
    known = known_of("agreement", tokenizer)
    groups = probed("agreement", text_model(tokenizer), known)
    assert {"unigram", "bigram"} <= groups["SS"].rules.keys()
    assert groups["SP"].rules["unigram"] == groups["SS"].rules["unigram"]  # it sees the verb alone
    rows = [tokenizer.encode(text) for text in ("The keys are old.", "The pilot laughs.")]
    stream = known._tokens
    alone = KneserNey(stream, tokenizer.vocab_size, order=2)
    for row, found in zip(rows, known.bigram(rows, tokenizer.end_id), strict=True):
        wanted = alone.probabilities(np.array([tokenizer.end_id, *row]))[1:]
        assert found == pytest.approx(np.log(wanted))
    first = rows[0][0]
    assert known.has(int(stream[4]), int(stream[5]))
    assert not known.has(tokenizer.end_id, tokenizer.end_id)
    followers = [int(b) for a, b in pairwise(stream) if a == first]
    assert followers.count(known.follower(first)) == max(map(followers.count, set(followers)))
    assert known.counts[known.majority] == known.counts[tokenizer.text_ids].max()


def looking_up(rows: Sequence[Sequence[int]]) -> list[RowScores]:
    """Return the scores of a perfect induction head.

    The head predicts the token that followed the previous occurrence of the current token, or token 0 if there is none.
    """
    found = []
    for row in rows:
        best = [0] * len(row)
        for place in range(1, len(row)):
            earlier = [other for other in range(1, place) if row[other - 1] == row[place - 1]]
            best[place] = row[earlier[-1]] if earlier else 0
        found.append(RowScores(np.where(np.array(best) == row, 0.0, 3.0), np.array(best)))
    return found


@pytest.mark.parametrize("corpus", ["repeats", "recall", "agreement"])
def test_an_induction_head_solves_induction_and_recall(corpus: str, monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = tokenizer_of(corpus)
    model = text_model(tokenizer)
    known = known_of(corpus, tokenizer)
    for probe in (sequences.probe_induction, sequences.probe_recall):
        monkeypatch.setattr(sequences, "score_rows", lambda _, rows: looking_up(rows))
        perfect = probe(model, known, 12, 5)
        assert {group.proportion.value for group in perfect.groups} == {1.0}
        monkeypatch.setattr(
            sequences,
            "score_rows",
            lambda _, rows: [RowScores(np.ones(len(r)), np.full(len(r), known.majority)) for r in rows],
        )
        for group in probe(model, known, 12, 5).groups:
            assert group.proportion.value == pytest.approx(group.rules["majority"])
            assert group.proportion.count > 0


def test_rows_of_induction_and_recall() -> None:
    tokenizer = tokenizer_of("repeats")
    model = text_model(tokenizer, context=43)
    known = known_of("repeats", tokenizer)
    rows, length = sequences.induction_rows(model, known, 6, seed=5)
    assert length == 10
    assert all(row == row[:10] * 4 and len(set(row)) == 10 for row in rows)
    result = sequences.probe_induction(model, known, 6, 5)
    assert [group.name for group in result.groups] == [
        "repeated tokens",
        "copy 2",
        "copy 3",
        "copy 4",
        "neighbours never trained on",
    ][: len(result.groups)]
    assert [group.proportion.count for group in result.groups[:4]] == [6 * 29, 6 * 9, 6 * 10, 6 * 10]
    assert result.groups[0].chance == 1 / 64
    recall = tokenizer_of("recall")
    texts, values, what = sequences.recall_rows(text_model(recall), None, 4, seed=5)
    assert (values, what) == (26, "documents of recall")
    assert [recall.decode(row) for row in texts] == list(find_text_corpus("recall").documents(4, 5))
    own, values, what = sequences.recall_rows(model, known, 4, seed=5)  # no "|" there
    assert (values, what.split()[0]) == (32, "random")
    for row in own:
        half = len(row) // 2
        pairs = [list(zip(part[::2], part[1::2], strict=True)) for part in (row[:half], row[half:])]
        assert sorted(pairs[0]) == sorted(pairs[1])
        assert len({key for key, _ in pairs[0]}) == half // 2
        assert not {key for key, _ in pairs[0]} & {value for _, value in pairs[0]}


def test_a_model_with_a_short_context_is_refused() -> None:
    model = text_model(tokenizer_of("recall"), context=7)
    for probe in (sequences.probe_induction, sequences.probe_recall):
        with pytest.raises(GlassError, match=r"reads .*7"):
            probe(model, None, 4, 5)
    with pytest.raises(GlassError, match=r"'The .* has \d+ tokens, but this run reads at most 7"):
        token_scores(model, ["The keys"])


@pytest.mark.parametrize("kind", TOKENIZER_KINDS)
def test_every_character_has_a_token_and_a_score(kind: str) -> None:
    text = "The cat sat on the mat. আমি তোমায় ভালোবাসি। " * 3
    sizes = {"bpe": 300, "unigram": 400, "wordpiece": 200}
    settings = TokenizerConfig.model_validate({"kind": kind, "vocab_size": sizes.get(kind, 200)})
    model = text_model(train_tokenizer(settings, [text]), context=140)
    for given in ("The cat sat.", "আমি the Zebra 🙂 sat", " cat  cat"):
        shown = as_written(model.tokenizer, given)
        [tokens] = token_scores(model, [shown])
        ends = [end for end, _ in tokens]
        assert ends == sorted(ends)
        assert ends[-1] == len(shown)
        for place, (end, _) in enumerate(tokens):
            ids = model.tokenizer.encode(shown)[: place + 1]
            if "\ufffd" not in model.tokenizer.decode(ids):
                assert end == len(model.tokenizer.decode(ids))


def test_scores_equal_the_models_log_probabilities() -> None:
    model = text_model(tokenizer_of("agreement"), windows="stream")
    row = model.tokenizer.encode("The keys to the cabinet are old.")
    logits = model.model(torch.tensor([[model.tokenizer.start_id, *row[:-1]]]))[0].double()
    wanted = logits.log_softmax(-1)[torch.arange(len(row)), row].tolist()
    [read] = score_rows(model, [row])
    assert (-read.nats).tolist() == pytest.approx(wanted, abs=1e-6)
    assert read.best.tolist() == logits.argmax(-1).tolist()
    assert [score for _, score in scored(model.tokenizer, [row], [-read.nats])[0]] == pytest.approx(wanted, abs=1e-6)


@pytest.mark.parametrize("windows", ["documents", "stream"])
def test_a_masked_model_is_scored_with_each_token_masked_in_turn(windows: str) -> None:
    model = mask_filler(tokenizer_of("agreement", mask=True), windows)
    rows = [model.tokenizer.encode(text) for text in ("The keys to the cabinet are old.", "The pilot laughs.")]
    before = [model.tokenizer.start_id] if windows == "documents" else []
    assert max_row_tokens(model) == 29 - len(before)
    for row, read in zip(rows, score_rows(model, rows), strict=True):
        for place, token in enumerate(row):
            hidden = [*before, *row]
            hidden[place + len(before)] = model.mask_id
            logits = model.model(torch.tensor([hidden]))[0, place + len(before)].double()
            assert -read.nats[place] == pytest.approx(float(logits.log_softmax(-1)[token].detach()), abs=1e-6)


def test_surprisal_adds_up() -> None:
    tokenizer = tokenizer_of("agreement")
    model = text_model(tokenizer)
    rows = [
        np.array([tokenizer.end_id, *tokenizer.encode(text)]) for text in find_text_corpus("agreement").documents(9, 4)
    ]
    counts = np.bincount(np.concatenate(rows), minlength=tokenizer.vocab_size)
    found = surprisal(model, rows, counts, "this text", "of nine sentences", listed=1000)
    nats = [read.nats for read in score_rows(model, [row[1:].tolist() for row in rows])]
    assert found.tokens == sum(map(len, nats))
    assert found.mean == pytest.approx(float(np.concatenate(nats).mean()))
    for parts in found.parts.values():
        assert sum(part.tokens for part in parts) == found.tokens
        assert sum(part.fraction_of_nats for part in parts) == pytest.approx(1)
        assert sum(part.nats * part.tokens for part in parts) / found.tokens == pytest.approx(found.mean)
    first = found.parts["position in the row"][0]
    assert (first.name, first.tokens) == ("1", 9)
    assert first.nats == pytest.approx(np.mean([part[0] for part in nats]))
    early, late = found.ends
    reach = [part for part in nats if len(part) >= late]
    assert len(reach) >= len(nats) / 2
    wanted = np.mean([part[late - 1] for part in reach]) - np.mean([part[early - 1] for part in nats])
    assert found.learning == pytest.approx(wanted)
    assert "in-context learning" in found.text()
    assert [listed.nats for listed in found.each] == pytest.approx(np.concatenate(nats).tolist())
    assert "".join(listed.token for listed in found.each).count(".") == 9
    assert found.facts()["each"][0] == found.each[0]._asdict()
    assert [listed.place for listed in found.each] == [place for part in nats for place in range(1, len(part) + 1)]
    assert [listed.hit for listed in found.each] == np.concatenate([seen_earlier(row) for row in rows]).tolist()
    few = surprisal(model, rows[:1], counts, "this text", "of one", listed=1000)
    assert f"{few.each[3][1]:.4f}  {few.each[3][0]}\n" in few.text()
    assert surprisal(model, rows, counts, "this text", "of nine sentences", listed=7).each == found.each[:7]


def test_a_hit_is_a_bigram_that_occurred_before() -> None:
    assert seen_earlier(np.array([5, 1, 2, 5, 1, 1, 1])).tolist() == [False, False, False, True, False, True]


PAIR = {"sentence_good": "The cats sleep.", "sentence_bad": "The cats sleeps.", "field": "syntax", "UID": "number"}


def test_user_provided_pairs_are_read(tmp_path: Path) -> None:
    path = tmp_path / "own.jsonl"
    lines = [json.dumps(PAIR), "", json.dumps({**PAIR, "UID": "other", "pairID": 7})]
    path.write_text("\ufeff" + "\r\n".join(lines), encoding="utf-8")
    pairs = read_pairs(path)
    assert [(pair.good, pair.bad, pair.cell) for pair in pairs] == [
        ("The cats sleep.", "The cats sleeps.", cell) for cell in ("number", "other")
    ]
    assert {(pair.scored_from, pair.attractors) for pair in pairs} == {(0, 0)}
    assert len({pair.twin for pair in pairs}) == 2
    path.write_text(json.dumps({**PAIR, "UID": None} | {"UID": "x"}) + "\n", encoding="utf-8")
    assert read_pairs(path)[0].cell == "x"
    path.write_text(json.dumps({key: PAIR[key] for key in PAIR if key != "UID"}), encoding="utf-8")
    assert read_pairs(path)[0].cell == "syntax"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{", "line 2 is not JSON"),
        ("[1]", "line 2 contains [1], which is not an object"),
        ('{"sentence_good": "a"}', "line 2 has no sentence_bad"),
        ('{"sentence_good": 3, "sentence_bad": "a"}', "line 2: sentence_good is 3"),
        ('{"sentence_good": "a", "sentence_bad": " "}', 'line 2: sentence_bad is " "'),
        ('{"sentence_good": "a b", "sentence_bad": "a b"}', "line 2: both sentences are 'a b'"),
    ],
)
def test_a_line_that_is_not_a_pair_is_located(line: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "own.jsonl"
    path.write_text(f"{json.dumps(PAIR)}\n{line}\n", encoding="utf-8")
    with pytest.raises(GlassError) as caught:
        read_pairs(path)
    assert said in caught.value.problem
    assert "own.jsonl" in caught.value.problem
    assert len(str(caught.value).splitlines()) == 2


def test_a_file_without_pairs_is_refused(tmp_path: Path) -> None:
    empty = tmp_path / "empty.jsonl"
    odd = tmp_path / "odd.jsonl"
    empty.write_text("\n", encoding="utf-8")
    odd.write_bytes(b"\xff\xfe\x00")
    for path, said in (
        (empty, "has no pairs"),
        (odd, "not UTF-8"),
        (tmp_path / "emptyy.jsonl", "does not exist"),
        (tmp_path, "cannot be read"),
    ):
        with pytest.raises(GlassError, match=said):
            read_pairs(path)


def test_all_arrangements_of_brackets_are_equally_likely() -> None:
    def arrangements(pairs: int) -> set[str]:
        found = set()
        for opened in combinations(range(2 * pairs), pairs):
            word = "".join("(" if place in opened else ")" for place in range(2 * pairs))
            if closes(word):
                found.add(word)
        return found

    assert [endings(2 * pairs, 0) for pairs in range(7)] == [max(1, len(arrangements(n))) for n in range(7)]
    shapes = arrangements(4)
    drawn = [draw_word(generator(3, index), 4) for index in range(2800)]
    flat = [word.translate(str.maketrans("[{<]}>", "((()))")) for word in drawn]
    expected = len(drawn) / len(shapes)
    chi_square = sum((flat.count(shape) - expected) ** 2 / expected for shape in shapes)
    assert chi_square < len(shapes) - 1 + 4 * math.sqrt(2 * (len(shapes) - 1))
    assert all(closes(word) for word in drawn)


def test_brackets_come_in_minimal_pairs() -> None:
    corpus = Brackets()
    pairs = list(Brackets().minimal_pairs(500, seed=8))
    assert pairs[:7] == list(corpus.minimal_pairs(7, seed=8))
    for index, pair in enumerate(pairs):
        assert corpus.log_probability(pair.good) > -math.inf
        assert corpus.log_probability(pair.bad) == -math.inf
        assert pair.good[:-1] == pair.bad[:-1] == pair.good[: pair.scored_from]
        opened = next(at for at in range(len(pair.good) - 2, -1, -1) if closes(pair.good[at:]))
        low, high = DISTANCES[index % len(DISTANCES)]
        assert low <= (len(pair.good) - opened - 2) / 2 <= high
        misled = last_opened(pair.good[:-1]) != pair.good[-1]
        assert pair.attractors == misled
        assert not misled or pair.bad[-1] == last_opened(pair.good[:-1])


def test_a_group_of_own_pairs_may_have_a_name_that_the_report_uses() -> None:
    names = ["twins, all right", "x, 0 attractors"]
    pairs = [MinimalPair("a good", "a bad", scored_from=0, cell=names[n % 2], attractors=0, twin=n) for n in range(4)]
    groups = pair_probes.pair_groups(pairs, [1.0, 1.0, 1.0, -1.0], {})
    assert [(group.name, group.proportion.value, group.chance) for group in groups] == [
        ("all pairs", 0.75, 0.5),
        ("twins, all right", 1.0, 0.5),
        ("x, 0 attractors", 0.5, 0.5),
    ]
