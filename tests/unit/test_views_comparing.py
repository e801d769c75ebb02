"""Views that ablate or compare models: agreement with the library and the terminal, and their scripts."""

from __future__ import annotations

import ast
import json
import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from glassformer.app.server.registry import ModelRegistry
from glassformer.app.server.views.machines import WRITES
from glassformer.base.errors import GlassError
from glassformer.evaluation.probes.row_probabilities import score_after_first
from glassformer.inspection.explain import subject_of
from glassformer.inspection.patching import Zero, patch
from glassformer.tasks import Translator
from tests.journey.commands import here
from tests.unit.served_runs import LEARNT, TALL, TEXTS, Script, ask, check_scripts, learn, library

OFF = {"book": "dec.1.self.0", "fill": "enc.0.self.1", "mails": "enc.0.self.0", "turn": "dec.0.cross.1"}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder in which commands run."""
    return learn(tmp_path_factory.mktemp("views"))


@pytest.fixture(scope="module")
def registry(home: Path) -> Iterator[ModelRegistry]:
    """Return a registry with the runs."""
    with pytest.MonkeyPatch.context() as patched:
        patched.chdir(home)
        yield ModelRegistry([home / "runs" / name for name in LEARNT], "cpu")


@pytest.fixture(scope="module")
def scripts() -> list[Script]:
    """Return the list of scripts that the tests of this file collect."""
    return []


# ablation


@pytest.mark.thorough
@pytest.mark.parametrize("run", OFF)
@pytest.mark.parametrize("instead", ["zero", "mean", "first", "frozen"])
def test_the_page_and_the_terminal_agree(
    registry: ModelRegistry, home: Path, run: str, instead: str, scripts: list[Script]
) -> None:
    answer = ask(registry, run, "ablation", off=[OFF[run]], instead=instead, tokens=150)
    done = here(
        "evaluate", f"runs/{run}", "--ablate", OFF[run], "--instead", instead, "--tokens", "150", "--json", folder=home
    )
    said = json.loads(done.stdout)
    assert answer["validation"]["off"] == pytest.approx(said["loss"], abs=1e-6)
    assert answer["validation"]["whole"] == pytest.approx(said["whole_loss"], abs=1e-6)
    assert answer["validation"]["tokens"] == said["tokens"]
    assert said["loss"] != said["whole_loss"]
    numbers = [n for bar in answer["answer"]["bars"] for n in (bar["before"], bar["after"])]
    if answer["text"]["whole"] is not None:
        numbers = [answer["text"]["whole"], answer["text"]["off"], *numbers]
    scripts.append((answer["python"], [*numbers, answer["validation"]["whole"], answer["validation"]["off"]]))


@pytest.mark.parametrize("instead", ["zero", "mean"])
def test_a_script_imports_only_names_that_it_uses(registry: ModelRegistry, instead: str) -> None:
    tree = ast.parse(ask(registry, "book", "ablation", off=[OFF["book"]], instead=instead)["python"])
    nodes = list(ast.walk(tree))
    imported = {alias.name for node in nodes if isinstance(node, ast.ImportFrom) for alias in node.names}
    assert imported <= {node.id for node in nodes if isinstance(node, ast.Name)}


@pytest.mark.parametrize("run", OFF)
def test_ablated_parts_are_patched(registry: ModelRegistry, run: str) -> None:
    answer = ask(registry, run, "ablation", off=[OFF[run]])
    model = library(registry.open(run))
    subject = subject_of(model, TEXTS[run])
    given = [torch.tensor([ids]) for ids in (subject.ids, subject.target_ids) if ids is not None]
    with torch.no_grad(), patch(model.model, {OFF[run]: Zero()}):
        logits = model.model(*given)[0]
    place = {"fill": subject.positions[:1], "turn": (0,)}.get(
        run, (-1,)
    )  # a mask, the first token of a target, or the last
    row = logits if run == "mails" else logits[place[0]]
    row = row.double().index_fill(0, torch.tensor(subject.special, dtype=torch.long), -torch.inf)
    shares = {subject.name(id): share for id, share in enumerate(row.softmax(0).tolist())}
    for bar in answer["answer"]["bars"]:
        assert bar["after"] == pytest.approx(shares[bar["name"]], abs=1e-6)


def test_mask_and_positions_can_be_ablated_together(registry: ModelRegistry) -> None:
    found = ask(registry, "book", "ablation", off=["dec.mask", "dec.positions"], write=5)
    assert found["text"]["off"] != found["text"]["whole"]
    assert found["written"]["before"] is not None
    assert found["keep"]["why"] == "only heads can be removed permanently, and dec.mask is not a head"


@pytest.mark.parametrize(
    ("off", "instead", "said"),
    [
        (["dec.0.slef.0"], "zero", "Did you mean dec.0.self.0"),
        (["dec.0.self.0", "dec.0.self.0"], "zero", "is named twice"),
        (["dec.0.feedforward"], "first", "has no attention"),
    ],
)
def test_parts_that_cannot_be_ablated_are_refused(
    registry: ModelRegistry, off: list[str], instead: str, said: str
) -> None:
    with pytest.raises(GlassError, match=said):
        ask(registry, "book", "ablation", off=off, instead=instead)


def test_patterns_of_unwritten_text_cannot_be_frozen(registry: ModelRegistry) -> None:
    found = ask(registry, "book", "ablation", off=["dec.0.self.0"], instead="frozen", write=5)
    assert "cannot be frozen" in found["written"]["why"]


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--ablate", "dec.0.self.0", "book.txt"], "another text, book.txt, was given"),
        (["--instead", "mean"], "--instead was given without --ablate"),
        (["--tokens", "5"], "--tokens was given without --ablate"),
        (["--ablate", "dec.0.self.0", "--tokens", "0"], "is less than one"),
        (["--ablate", "dec.7.self.0"], "this model has no part 'dec.7.self.0' to switch off"),
    ],
)
def test_glass_evaluate_refuses_options_without_effect(home: Path, more: list[str], said: str) -> None:
    more = [more[-1], *more[:-1]] if more[-1] == "book.txt" else more
    done = here("evaluate", "runs/book", *more, folder=home)
    assert done.returncode == 2
    assert said in done.stderr


def test_glass_evaluate_with_ablation_also_reports_the_whole_loss(home: Path) -> None:
    whole = json.loads(here("evaluate", "runs/book", "--json", folder=home).stdout)
    said = json.loads(here("evaluate", "runs/book", "--ablate", "dec.0.self.0", "--json", folder=home).stdout)
    assert said["whole_loss"] == pytest.approx(whole["loss"], abs=1e-6)
    assert "without dec.0.self.0" in here("evaluate", "runs/book", "--ablate", "dec.0.self.0", folder=home).stdout


# compare


@pytest.mark.thorough
@pytest.mark.parametrize(("one", "other", "by"), [("book", "post", "tokens"), ("book", "letters", "characters")])
def test_two_runs_are_compared_on_the_same_characters(
    registry: ModelRegistry, one: str, other: str, by: str, scripts: list[Script]
) -> None:
    answer = ask(registry, one, "compare", other=other)
    parts = answer["stretches"]
    assert answer["by"] == by
    assert "".join(part["text"] for part in parts) == TALL
    bars = {bar["name"]: bar for bar in answer["bars"]}
    for side, name in (("one", one), ("other", other)):
        model = library(registry.open(name))
        nats = score_after_first(model, [np.array(model.prompt_ids(TALL))])[0].nats
        first = next(at for at, part in enumerate(parts) if part[side] is not None)
        start = parts[first]["start"]
        lengths = np.cumsum([len(part["text"]) for part in parts[first:]])
        ends = start + lengths if name == "letters" else np.arange(1, len(parts) - first + 1)
        known = nats if name != "letters" else nats[start - 1 :]
        until = np.cumsum(known)[(ends - start if name == "letters" else ends) - 1]
        np.testing.assert_allclose(np.cumsum([part[side] for part in parts[first:]]), until, atol=1e-5)
        assert answer["runs"][side == "other"]["mean"] == pytest.approx(float(nats.mean()), abs=1e-6)
        for _, text, share in model.candidates(TALL, 3):
            assert bars[text.replace(" ", "␣")][side] == pytest.approx(share, abs=1e-6)
    numbers = [
        *(run["mean"] for run in answer["runs"]),
        *(bar[side] for bar in answer["bars"] for side in ("one", "other")),
        *(part[key] for part in parts for key in ("start", "end", "one", "other")),
    ]
    scripts.append((answer["python"], [number for number in numbers if number is not None]))


def test_a_classifier_gives_no_token_a_probability(registry: ModelRegistry) -> None:
    answer = ask(registry, "book", "compare", other="mails")
    assert answer["stretches"] is None
    assert answer["note"] is None
    assert "no probability" in answer["why"]
    assert "labels" in answer["answers"]


@pytest.mark.parametrize(
    ("one", "other", "read"),
    [
        ("book", "fill", "only the tokens before it"),
        ("fill", "turn", "only the source and the target tokens before it"),
        ("fill", "mails", None),
        ("fill", "talk", None),
        ("book", "turn", None),
    ],
)
def test_the_note_says_how_the_tasks_differ(registry: ModelRegistry, one: str, other: str, read: str | None) -> None:
    note = ask(registry, one, "compare", other=other, text="It was a [MASK] day.")["note"]
    assert note is None if read is None else read in note


def test_the_difference_of_two_maps(registry: ModelRegistry) -> None:
    heads = {"head": "dec.0.self.1", "other_head": "dec.0.self.0"}
    answer = ask(registry, "book", "contrast", other="post", **heads)
    maps = []
    for name, head in (("book", 1), ("post", 0)):
        model = library(registry.open(name))
        attention = subject_of(model, TEXTS[name]).trace().stack.blocks[0].attention
        maps.append(attention.pattern[0, head].numpy())
    T = len(maps[0])
    found = np.frombuffer(answer.data, "<f4").reshape(3, T, T)
    hidden = np.triu(np.ones((T, T), dtype=bool), 1)
    assert np.isnan(found[:, hidden]).all()
    np.testing.assert_allclose(found[0][~hidden], maps[0][~hidden], atol=1e-6)
    np.testing.assert_allclose(found[2][~hidden], (maps[0] - maps[1])[~hidden], atol=1e-6)
    other = ask(registry, "book", "contrast", other="letters", **heads)
    assert not other.header["difference"]
    assert len(other.data) == 4 * sum(math.prod(shape) for shape in other.header["shapes"])
    assert "different query or key tokens" in other.header["why"]


# machines


def test_each_family_sees_its_visible_tokens(registry: ModelRegistry) -> None:
    masks = {
        run: {m["kind"]: m["allowed"] for m in ask(registry, run, "machines")["masks"]}
        for run in ("book", "fill", "turn")
    }
    triangle = masks["book"]["dec.self"]
    assert triangle == ["1" * (row + 1) + "0" * (len(triangle) - row - 1) for row in range(len(triangle))]
    assert set("".join(masks["fill"]["enc.self"])) == {"1"}
    assert sorted(masks["turn"]) == ["dec.cross", "dec.self", "enc.self"]
    assert set("".join(masks["turn"]["dec.cross"])) == {"1"}


@pytest.mark.thorough
def test_each_family_predicts_from_its_visible_tokens(registry: ModelRegistry, scripts: list[Script]) -> None:
    text = "It was a tall day when the dog met the bird."
    for run in ("book", "fill"):
        answer = ask(registry, run, "machines", text=text, at=text.index("dog") + 1)
        guess = answer["guess"]
        model = library(registry.open(run))
        assert guess["token"].strip() == "dog"
        ids = model.prompt_ids(text) if run == "book" else list(model.frame.around(model.tokenizer.encode(text)))
        place = guess["place"]
        row = ids[:place] if run == "book" else [*ids[:place], model.mask_id, *ids[place + 1 :]]
        with torch.no_grad():
            logits = model.model(torch.tensor([row]))[0, place - (run == "book")].double()
        assert answer["costs"]["nats"][place] == pytest.approx(-float(logits.log_softmax(0)[ids[place]]), abs=1e-5)
        special = torch.tensor(sorted(model.tokenizer.special) if run == "fill" else [], dtype=torch.long)
        shares = logits.index_fill(0, special, -torch.inf).softmax(0)
        shown = [each["probability"] for each in guess["likeliest"]]
        assert shown == pytest.approx(shares.sort(descending=True).values[:5].tolist(), abs=1e-6)
        nats = [n for n in answer["costs"]["nats"] if n is not None]
        scripts.append((answer["python"], [*nats, *shown]))
    turn = ask(registry, "turn", "machines")
    assert turn["guess"] is None
    translator = library(registry.open("turn"))
    assert isinstance(translator, Translator)
    greedy = translator.config.sample.replace(beams=1, temperature=0.0, repetition_penalty=1.0, tokens=WRITES)
    assert turn["writes"] == translator.generate([TEXTS["turn"]], greedy)[0].text
    assert turn["writes"].startswith(turn["target"])  # with fewer tokens if it does not end
    assert turn["validation"]["loss"] > 0


@pytest.mark.thorough
def test_the_scripts_print_the_numbers(home: Path, scripts: list[Script]) -> None:
    """This test runs after all other tests of this file."""
    assert len(scripts) >= 20
    check_scripts(scripts, home)
