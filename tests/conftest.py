"""Shared by all tests: one thread per process, no network for any library, and where the real text lies."""

from __future__ import annotations

import gc
import os
from pathlib import Path

import pytest

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

REAL_TEXT = Path(__file__).resolve().parents[2] / "shared" / "data"


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


@pytest.fixture(scope="session")
def real_text() -> Path:
    """The folder of real text beside the checkout."""
    if not REAL_TEXT.is_dir():
        pytest.skip(f"real text is not at {REAL_TEXT}")
    return REAL_TEXT
