"""Ctrl-C ends a command with exit code 130, even if a library handles the interrupt; a signal stops training."""

from __future__ import annotations

import io
import os
import signal
import sys
from argparse import ArgumentParser, Namespace
from types import SimpleNamespace

import pytest

from glassformer.app.cli import main as module
from glassformer.app.cli.main import main
from glassformer.launch import start
from glassformer.training.parallel.processes import OneProcess


def command(how: str) -> SimpleNamespace:
    """Return a command that is interrupted inside a library, which handles the interrupt as `how` says."""

    def run(arguments: Namespace) -> int:
        try:
            os.kill(os.getpid(), signal.SIGINT)
        except KeyboardInterrupt:
            if how == "replaces it":
                raise ValueError("could not determine the shape of object type") from None
            raise
        return 0

    def add_arguments(parser: ArgumentParser) -> None:
        pass

    return SimpleNamespace(run=run, add_arguments=add_arguments, __doc__="A command.")


@pytest.mark.parametrize("how", ["lets it through", "replaces it"])
def test_an_interrupt_ends_with_130(
    how: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(module, "command_module", lambda name: command(how))
    # A shell starts a background job with SIGINT ignored, and Python leaves it so: set the handler that raises.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        assert main(["plan"]) == 130
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)
    assert capsys.readouterr().err == ""


def test_an_error_without_an_interrupt_is_an_internal_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(arguments: Namespace) -> int:
        raise ValueError("a fault")

    broken = SimpleNamespace(run=run, add_arguments=lambda parser: None, __doc__="A command.")
    monkeypatch.setattr(module, "command_module", lambda name: broken)
    assert main(["plan"]) == 1
    assert "unexpected: ValueError: a fault" in capsys.readouterr().err


class BusyStream(io.StringIO):
    """A stream in the middle of a write: Python refuses a second write from a signal handler."""

    def write(self, text: str) -> int:
        raise RuntimeError("reentrant call inside <_io.BufferedWriter name='<stderr>'>")


def test_a_signal_in_the_middle_of_a_write_stops_training_too(monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = SimpleNamespace(processes=OneProcess(), stop_requested=False, stopping=False)
    monkeypatch.setattr(sys, "stderr", BusyStream())
    with start._stopped_by_signals(trainer):  # type: ignore[arg-type]
        os.kill(os.getpid(), signal.SIGTERM)
    assert trainer.stop_requested
