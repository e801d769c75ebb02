"""Settings and fixtures of all tests: one thread per process, no GPU, float32, no network, a folder of real text."""

from __future__ import annotations

import gc
import os
from collections.abc import Generator
from pathlib import Path

import pytest
from hypothesis import settings

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
if "GLASS_TEST_GPU" not in os.environ:  # set it for tests/gpu alone: the others expect the processor's numbers
    os.environ["CUDA_VISIBLE_DEVICES"] = ""

# The default deadline of an example, 200 ms, would make tests fail on a busy machine.
settings.register_profile("without-deadline", deadline=None)
settings.load_profile("without-deadline")

REAL_TEXT = Path(__file__).resolve().parents[2] / "shared" / "data"

ALLOWED_SKIPS = ("real text is not at", "this system", "SCIPY_ARRAY_API")
"""Prefixes of the skip reasons that `--nothing-missing` accepts: installing software would not make these tests run.

The last prefix is the name of an environment variable that a check of scikit-learn needs; another test runs that check
in a subprocess with the variable set.
"""


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
    """Under `--nothing-missing`, turn a skip into a failure unless its reason begins with one of `ALLOWED_SKIPS`."""
    if not (config.getoption("--nothing-missing") and report.skipped and isinstance(report.longrepr, tuple)):
        return
    reason = report.longrepr[2].removeprefix("Skipped: ")
    if not reason.startswith(ALLOWED_SKIPS):
        report.outcome = "failed"
        report.longrepr = f"{report.nodeid} would be skipped, and --nothing-missing was given: {reason}"


def pytest_sessionstart() -> None:
    """Disable garbage collection while tests are collected, because it took a third of the time and freed nothing."""
    gc.disable()


def pytest_collection_finish() -> None:
    """Enable garbage collection again, and exclude all existing objects from it."""
    gc.freeze()
    gc.enable()


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> None:
    import torch

    torch.set_num_threads(1)


@pytest.fixture(scope="session", autouse=True)
def _float32(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Make precision `auto` select float32 here and in child processes: the tests' tolerances are for float32."""
    os.environ["GLASS_CACHE"] = str(tmp_path_factory.mktemp("cache"))
    from glassformer.model.precision import Speeds, cache_speeds

    cache_speeds(Speeds(float32=100.0, bfloat16=1.0))


@pytest.fixture(scope="session")
def real_text() -> Path:
    """Return the folder of real text beside the checkout; skip the test if the folder is missing."""
    if not REAL_TEXT.is_dir():
        pytest.skip(f"real text is not at {REAL_TEXT}")
    return REAL_TEXT
