"""Shared by all tests: one thread per process, no GPU, float32, no network, and where the real text lies."""

from __future__ import annotations

import gc
import os
from collections.abc import Generator
from pathlib import Path

import pytest

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
if "GLASS_TEST_GPU" not in os.environ:  # set it for tests/gpu alone: the others expect the processor's numbers
    os.environ["CUDA_VISIBLE_DEVICES"] = ""

REAL_TEXT = Path(__file__).resolve().parents[2] / "shared" / "data"

ALLOWED_SKIPS = ("real text is not at", "this system", "SCIPY_ARRAY_API")
"""How the reasons begin for which a test may be skipped under --nothing-missing: nothing could be installed for it.
The last one is scikit-learn's own, for a check that runs in a process of its own here."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--nothing-missing",
        action="store_true",
        help="fail, do not skip, tests for which a package, a browser or a compiler is missing",
    )


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    refuse_skip(report, item.config)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    refuse_skip(report, collector.config)
    return report


def refuse_skip(report: pytest.TestReport | pytest.CollectReport, config: pytest.Config) -> None:
    """Under --nothing-missing, turn a skip into a failure unless nothing could have been installed for the test."""
    if not (config.getoption("--nothing-missing") and report.skipped and isinstance(report.longrepr, tuple)):
        return
    reason = report.longrepr[2].removeprefix("Skipped: ")
    if not reason.startswith(ALLOWED_SKIPS):
        report.outcome = "failed"
        report.longrepr = f"{report.nodeid} would be skipped, and --nothing-missing was given: {reason}"


def pytest_sessionstart() -> None:
    """Nothing that is imported and collected goes away again: looking for what does took a third of the time."""
    gc.disable()


def pytest_collection_finish() -> None:
    """From here on; what is there by now need not be looked at."""
    gc.freeze()
    gc.enable()


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> None:
    import torch

    torch.set_num_threads(1)


@pytest.fixture(scope="session", autouse=True)
def _float32(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Let `auto` mean float32 here and in child processes: tolerances are float32's, on every processor."""
    os.environ["GLASS_CACHE"] = str(tmp_path_factory.mktemp("cache"))
    from glassformer.model.precision import Speeds, cache_speeds

    cache_speeds(Speeds(float32=100.0, bfloat16=1.0))


@pytest.fixture(scope="session")
def real_text() -> Path:
    """The folder of real text beside the checkout."""
    if not REAL_TEXT.is_dir():
        pytest.skip(f"real text is not at {REAL_TEXT}")
    return REAL_TEXT
