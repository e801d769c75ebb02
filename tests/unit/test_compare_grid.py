"""Grids, their statistics and their reports, without training anything."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest

from glassformer.base.config import Config
from glassformer.base.errors import GlassError
from glassformer.base.sealed import write_sealed
from glassformer.experiments.grid import Cell, Grid, difference, make_grid, parse_variations, shared_settings
from glassformer.experiments.pictures import band, validation_curve
from glassformer.experiments.report import comparison_report
from glassformer.experiments.runner import read_results
from glassformer.experiments.statistics import Contrast, SeedStatistics, tabulate
from tests.unit.comparison_grids import VARY, grid_of, result, settings


def test_a_grid_has_every_combination_with_every_seed() -> None:
    grid = grid_of()
    names = [cell.name for cell in grid.cells]
    assert len(names) == 6
    assert names[:3] == [
        "positions=learned learning_rate=1e-3",
        "positions=learned learning_rate=3e-3",
        "positions=rotary learning_rate=1e-3",
    ]
    found = [(cell.config.model.positions, cell.config.train.learning_rate) for cell in grid.cells]
    assert found == [(p, r) for p in ("learned", "rotary", "none") for r in (1e-3, 3e-3)]
    jobs = grid.jobs()
    assert len({job.name for job in jobs}) == 18
    assert [job.config.train.seed for job in jobs] == [7] * 6 + [8] * 6 + [9] * 6
    for job in jobs:
        assert job.config.replace(train={**job.config.train.model_dump(), "seed": 7}) == job.cell.config
        assert grid.find(job.name) == job


def test_names_are_valid_folder_names_on_every_system() -> None:
    cell = Cell({"data.source": "a b/c:d*?é" * 20}, Config())
    name = Grid((cell,), 1).jobs()[0].name
    assert len(name) < 120
    assert not set(name) & set('/\\:*?"<>| ')


@pytest.mark.parametrize(
    ("vary", "problem", "remedy"),
    [
        (["model.positons=learned,none"], "there is no setting 'model.positons'", "Did you mean model.positions?"),
        (["positions=learned,none"], "names no section", "Write model.positions."),
        (["model.positions"], "has no =", "--vary SECTION.FIELD=VALUE,VALUE"),
        (["model.positions=rotary"], "fewer than two values", "--vary model.positions=VALUE,VALUE"),
        (["model.positions=rotary,"], "an empty value", "Give at least two"),
        (["model.positions=rotary,none,rotary"], "has rotary twice", "Give each value once"),
        (["train.learning_rate=1e-3,0.001"], "are the same", "Leave one of the values out"),
        (["model.heads=1,2", "model.heads=4,8"], "was given twice", "all its values at once"),
        (["model.positions=learned,rotery"], "positions=rotery: model.positions = 'rotery'", "Did you mean rotary?"),
        (["model.heads=1,5"], "heads=5: heads = 5 does not divide width = 24", "Set heads to"),
        (["train.seed=1,2"], "train.seed cannot vary", "--seeds 3"),
        (
            ["remove=nothing,causal-msk"],
            "--vary remove=causal-msk: unknown part 'causal-msk'",
            "Did you mean causal-mask?",
        ),
        (
            ["remove=nothing,causal-mask", "train.task=lm,masked"],
            "remove=causal-mask needs a language model, but train.task = masked",
            "lm",
        ),
        (["data.source=stories,-"], "- is standard input", "Save the text in a file"),
        (
            ["train.steps=" + ",".join(map(str, range(1, 40))), "train.warmup=" + ",".join(map(str, range(10)))],
            "are more than 1,000 runs",
            "Vary fewer values",
        ),
        ([], "nothing varies", "--vary"),
    ],
)
def test_what_cannot_be_compared_is_refused_by_name(vary: list[str], problem: str, remedy: str) -> None:
    with pytest.raises(GlassError) as error:
        make_grid(parse_variations(vary), 3, settings)
    assert problem in error.value.problem
    assert remedy in error.value.remedy


def test_a_grid_is_restored_from_its_file(tmp_path: Path) -> None:
    grid = grid_of()
    grid.write(tmp_path)
    assert Grid.read(tmp_path) == grid
    (tmp_path / "grid.json").write_text("{}", encoding="utf-8")
    with pytest.raises(GlassError, match="is damaged"):
        Grid.read(tmp_path)


def test_the_difference_between_grids_is_named() -> None:
    grid = grid_of()
    assert difference(grid, grid_of()) is None
    assert difference(grid, grid_of(seeds=5)) is None
    assert difference(grid, grid_of(seeds=1)) == "3 seeds, not 1"
    assert "positions=learned learning_rate=1e-3" in str(difference(grid, grid_of("model.heads=1,2")))
    other = Grid(make_grid(parse_variations(VARY), 3, lambda c: settings({**c, "train.batch": "5"})), 3)
    assert difference(grid, other) == "train.batch = 32, not 5"


def test_shared_settings_differ_from_defaults_and_do_not_vary() -> None:
    assert shared_settings(grid_of("model.positions=rotary,none")) == {"model.width": 24, "train.seed": 7}


@pytest.mark.parametrize("values", [(1.5, 2.5), (0.1, 0.2, 0.30001), tuple(np.random.default_rng(3).normal(size=11))])
def test_means_and_deviations_equal_numpy(values: tuple[float, ...]) -> None:
    spread = SeedStatistics(values)
    assert spread.mean == pytest.approx(np.mean(values), rel=1e-14)
    assert spread.sd == pytest.approx(np.std(values, ddof=1), rel=1e-14)


def test_a_difference_below_two_deviations_is_not_claimed() -> None:
    base = SeedStatistics((1.0, 1.2))  # sd 0.1414
    assert (
        Contrast.of(SeedStatistics((1.37, 1.38)), base).finding == "no clear difference"
    )  # 0.275 is less than 2 x 0.1414
    assert Contrast.of(SeedStatistics((1.39, 1.40)), base).finding == "higher"
    assert Contrast.of(SeedStatistics((0.79, 0.80)), base).finding == "lower"
    assert Contrast.of(base, SeedStatistics((0.79, 0.80))).finding == "higher"
    assert Contrast.of(SeedStatistics((9.0,)), base).finding == "unknown"
    assert Contrast.of(SeedStatistics(()), base).delta is None
    same = Contrast.of(SeedStatistics((1.0, 1.0)), SeedStatistics((1.0, 1.0)))
    assert (same.ratio, same.finding) == (0.0, "no clear difference")
    assert Contrast.of(SeedStatistics((2.0, 2.0)), SeedStatistics((1.0, 1.0))).ratio == math.inf


def test_a_table_groups_seeds_and_lists_failures() -> None:
    grid = grid_of("model.positions=learned,none", seeds=2)
    a, b = ([grid.job(number, seed).name for seed in range(2)] for number in range(2))
    results = {a[0]: result(1.0), a[1]: result(1.2), b[0]: result(3.0), b[1]: {"failed": "it fell over"}}
    table = tabulate(grid, results)
    assert table.rows[0].spread.values == (1.0, 1.2)
    assert table.rows[0].contrast is None
    assert table.rows[1].spread.values == (3.0,)
    assert table.rows[1].failures == ((b[1], "it fell over"),)
    assert table.choices == 5
    report = comparison_report(grid, table, {"bars.svg": "<svg>bars</svg>"}, Path("out"))
    for text in (report.markdown(), report.html(), report.text()):
        assert "1.1000 ± 0.1414" in text
        assert f"{b[1]} failed: it fell over" in text
    assert "](bars.svg)" in report.markdown()
    assert "<svg>bars</svg>" in report.html()
    del results[b[1]]
    report = comparison_report(grid, tabulate(grid, results), {}, Path("out"))
    assert f"{b[1]} failed: its result is missing or damaged" in report.notes
    told = report.facts()["cells"]
    assert told[1]["delta"] == pytest.approx(1.9)
    assert told[1]["finding"] == "unknown"
    other = tabulate(grid, results, baseline=1)
    assert [row.contrast is None for row in other.rows] == [False, True]


def test_a_difference_without_spread_is_null_in_json() -> None:
    grid = grid_of("model.positions=learned,none", seeds=2)
    losses = [1.0, 3.0, 1.0, 3.0]  # seed by seed
    table = tabulate(grid, {job.name: result(loss) for job, loss in zip(grid.jobs(), losses, strict=True)})
    told = json.loads(json.dumps(comparison_report(grid, table, {}, Path("out")).facts(), allow_nan=False))
    assert (told["cells"][1]["delta_over_sd"], told["cells"][1]["finding"]) == (None, "higher")


@pytest.mark.parametrize(("vary", "same"), [("model.positions=learned,none", True), ("train.batch=3,5", False)])
def test_the_report_claims_equal_rows_only_if_true(vary: str, same: bool) -> None:
    grid = grid_of(vary, seeds=1)
    report = comparison_report(grid, tabulate(grid, {job.name: result(1.0) for job in grid.jobs()}), {}, Path("out"))
    assert ("see the same rows" in report.markdown()) == same


def test_cells_with_different_tokens_are_compared_in_bits_per_byte() -> None:
    grid = grid_of("tokenizer.kind=bytes,characters", seeds=1)
    table = tabulate(grid, {job.name: result(3.0 + number) for number, job in enumerate(grid.jobs())})
    assert (table.measure, table.title) == ("bits_per_byte", "bits per byte")
    assert [row.spread.mean for row in table.rows] == pytest.approx([1.0, 4 / 3])


def test_a_band_has_the_steps_that_all_seeds_have(tmp_path: Path) -> None:
    lines = '{"step": 2, "loss": 9}\n{"step": 4, "loss": 8, "validation_loss": 7.5}\n{"step": 6, "vali'
    (tmp_path / "metrics.jsonl").write_text(lines, encoding="utf-8")
    assert validation_curve(tmp_path) == [(4, 7.5)]
    assert validation_curve(tmp_path / "none") == []
    assert band([[(2, 1.0), (4, 3.0), (6, 5.0)], [(2, 2.0), (4, 1.0)]]) == ([2, 4], [1.0, 1.0], [1.5, 2.0], [2.0, 3.0])


def test_damaged_and_edited_results_are_left_out(tmp_path: Path) -> None:
    grid = grid_of(seeds=1)
    (tmp_path / "results").mkdir()
    paths = [tmp_path / "results" / f"{job.name}.json" for job in grid.jobs()]
    for path, content in zip(paths[:4], ("5", json.dumps(result(2.0)), "[]", "{"), strict=True):
        path.write_text(content, encoding="utf-8")
    for path, facts in zip(paths[4:6], (result(2.0), {"failed": "x"}), strict=True):
        write_sealed(path, facts)
    assert list(read_results(tmp_path, grid).values()) == [result(2.0), {"failed": "x"}]
    paths[4].write_text(paths[4].read_text(encoding="utf-8").replace("2.0", "1.0"), encoding="utf-8")
    assert list(read_results(tmp_path, grid).values()) == [{"failed": "x"}]
