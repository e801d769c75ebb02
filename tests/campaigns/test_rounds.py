"""A few rounds of the campaigns `kills`, `second_resume` and `alterations`."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.journey.commands import begin, ended

ROOT = Path(__file__).parents[2]
FEW = "lm-plateau-dropout,lm-early-stopping,translate-noam-accumulation,masked-cosine-dropout,lm-wsd-muon"
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="campaigns fork, and read /proc")


def campaign(name: str, *arguments: str) -> tuple[int, str]:
    """Run a campaign in a separate process; return its exit code and its output."""
    done = ended(begin("-m", f"tests.campaigns.{name}", *arguments, folder=ROOT))
    return done.returncode, done.stdout + done.stderr


@pytest.mark.thorough
def test_stopped_and_resumed_runs_equal_uninterrupted_runs() -> None:
    code, said = campaign("kills", "--rounds", "20", "--seed", "0", "--only", FEW)
    assert code == 0, said
    assert "0 of 20 rounds differ" in said


@pytest.mark.thorough
def test_a_second_resume_is_refused_and_changes_nothing() -> None:
    code, said = campaign("second_resume", "--rounds", "12", "--seed", "1")
    assert code == 0, said
    assert said.splitlines()[:5] == [
        f"{name:<24} {number:>6}"
        for name, number in {
            "rounds": 12,
            "first ended": 0,
            "pointer names nothing": 0,
            "best lost": 0,
            "told": 12,
        }.items()
    ]


@pytest.mark.thorough
def test_altered_run_folders_are_refused_or_give_the_same_results() -> None:
    code, said = campaign("alterations", "--rounds", "30", "--seed", "0")
    assert code == 0, said
