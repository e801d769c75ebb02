"""Command line: the table of commands, and `main`, which parses the arguments of one command and runs it."""

from __future__ import annotations

import argparse
import atexit
import gc
import importlib
import io
import os
import signal
import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from itertools import takewhile
from keyword import iskeyword
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any, NoReturn

from glassformer.base.errors import GlassError, ReportedElsewhereError, closest, convert_memory_errors, nearest
from glassformer.base.packages import install_command
from glassformer.base.version import __version__
from glassformer.training.clock import process_began

COMMANDS = {
    "demo": "train a tiny model on generated stories and print a story it generates; under 3 minutes, no download",
    "plan": "before training, estimate size, steps, time, memory and baselines by a short measurement",
    "train": "train a model on your own text",
    "generate": "continue, translate or summarize a text with a trained model",
    "chat": "chat with a model that was trained on conversations",
    "classify": "predict the label of a text with a trained classifier",
    "fill": "predict the [MASK] tokens of a text with a trained encoder",
    "evaluate": "evaluate a run: loss, BLEU, ROUGE or accuracy by its task, with confidence intervals and baselines",
    "probe": "test a run's abilities, such as agreement, recall and word senses, with baselines; measure surprisal",
    "explain": "print one forward pass in numbers, step by step, for a run or a small example; also as a page",
    "receipt": "explain a token: its logit as the sum of the contributions of all parts, and how it was sampled",
    "attribute": "attribute an answer to parts, layers and tokens, by lens, rollout, occlusion and patching",
    "heads": "score the roles of each attention head, with chance levels and confidence intervals",
    "look": "draw attention patterns: of all heads, of the heads of a layer, or of one head with its tokens",
    "prune": "remove the least important attention heads; measure the effect of single heads and attention layers",
    "serve": "show runs on a web page in the browser, and serve them through an OpenAI-compatible API",
    "share": "write a run to one HTML file that computes its views by itself: no server, no network",
    "verify": "check a run on its own weights: caches, masks, gradients, resuming, files, each against a limit",
    "compare": "train a grid of settings with several seeds, and compare the results; includes built-in studies",
    "export": "export a run as a Hugging Face folder, ONNX or GGUF; the exported files are compared with the run",
    "import": "import a model that transformers saved, as a new run",
    "count": "count parameters, bytes, FLOPs and KV cache of a run or recipe, by component",
    "learn": "self-checking exercises, a bug lab and a glossary; assignments and grading for teachers",
    "data": "list the generated corpora and recipes, print a corpus, inspect a text, encode a text for many runs",
    "doctor": "inspect this machine, and check that its devices compute correct results",
}
"""Name of each command -> its description in `glass --help`."""
GROUPS = {
    "Train": ("demo", "plan", "train", "compare", "data", "count", "doctor"),
    "Use": ("generate", "chat", "classify", "fill", "evaluate", "serve"),
    "See": ("explain", "receipt", "attribute", "heads", "look", "probe", "prune", "verify"),
    "Learn": ("learn",),
    "Take away": ("export", "share", "import"),
}
"""Groups of commands, in the order of `glass --help`; every command is in exactly one group."""
OPTION_SUGGESTIONS = {
    "--time": "--minutes",
    "--length": "--tokens",
    "--max-tokens": "--tokens",
    "--max_new_tokens": "--tokens",
    "--lr": "--train.learning_rate",
    "--batch": "--train.batch",
    "--layers": "--model.layers",
    "--width": "--model.width",
    "--heads": "--model.heads",
}
"""Option of another program -> option of glassformer that the error suggests, if the command has that option."""
COURSE = "learn"
"""The command of the course, which is a separate package."""


class Parser(argparse.ArgumentParser):
    """`argparse.ArgumentParser` that raises `GlassError` for invalid arguments instead of ending the process."""

    def error(self, message: str) -> NoReturn:
        """Raise a `GlassError` that refers to `--help`."""
        raise GlassError(message, f"See {self.prog} --help.")

    def positionals(self) -> list[argparse.Action]:
        """Return the positional arguments."""
        return self._get_positional_actions()

    def usage_names(self) -> list[str]:
        """Return the positional arguments as in a usage line, such as RUN, [DATA] and [TEXT ...]."""
        shapes: dict[Any, str] = {None: "{}", "?": "[{}]", "*": "[{} ...]", "+": "{} ..."}
        return [shapes[each.nargs].format(each.metavar) for each in self.positionals()]

    def outputs(self, parsed: argparse.Namespace) -> dict[str, Path]:
        """Return the paths that the command writes (options with `type=output_path`), by option."""
        from glassformer.base.files import output_path

        given = {
            each.option_strings[0]: getattr(parsed, each.dest) for each in self._actions if each.type is output_path
        }
        return {option: path for option, path in given.items() if path not in (None, Path("-"))}

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """Raise a `GlassError` that suggests the closest choice, or lists all choices, if a value is not allowed."""
        if action.choices is not None and value not in action.choices:
            name = action.option_strings[-1] if action.option_strings else action.metavar or action.dest
            raise GlassError(f"{name} {value} is not allowed", nearest(str(value), map(str, action.choices)))

    def _refuse_unknown(self, option: str) -> None:
        """Raise a `GlassError` if there is no such option; it suggests another option or refers to `--help`."""
        if option not in self._option_string_actions:
            suggestion = OPTION_SUGGESTIONS.get(option)
            if suggestion not in self._option_string_actions:
                suggestion = closest(option, self._option_string_actions)
            remedy = f"{self.prog} --help lists all options." if suggestion is None else f"Did you mean {suggestion}?"
            raise GlassError(f"unknown option {option}", remedy)

    def parse_all(self, arguments: Sequence[str]) -> argparse.Namespace:
        """Parse the arguments.

        Raises:
            GlassError: an option is unknown, or an argument is missing, unexpected or not allowed.
        """
        for argument in takewhile(lambda each: each != "--", arguments):
            option = argument.split("=")[0]
            if option.startswith("--") and " " not in option:  # before argparse, which reports missing arguments first
                self._refuse_unknown(option)
        parsed, unparsed = self.parse_known_intermixed_args(arguments)
        if unparsed and unparsed[0].startswith("-"):
            self._refuse_unknown(unparsed[0])
        if unparsed:
            raise GlassError(
                f"unexpected argument {unparsed[0]!r}",
                f"Put a text of several words in quotes. See {self.prog} --help.",
            )
        self._note_repeated(arguments)
        return parsed

    def _note_repeated(self, arguments: Sequence[str]) -> None:
        """Print a note for each option of one value that was given several times: only the last value counts."""
        options = (each.split("=")[0] for each in takewhile(lambda each: each != "--", arguments))
        for option, count in Counter(each for each in options if each.startswith("--")).items():
            action = self._option_string_actions.get(option)
            if count > 1 and isinstance(action, argparse._StoreAction) and action.nargs is None:
                print(f"{option} was given {count} times: only the last value is used", file=sys.stderr)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code.

    Returns:
        0 on success, 1 after an unexpected error (with `--debug`, the error is raised instead), 2 after a `GlassError`,
        which the user can correct, and 130 after Ctrl-C. A command may also return 1, for example if a check fails.
    """
    if arguments is None:
        _outlive_standard_error()
    _open_closed_streams()
    argv = list(sys.argv[1:] if arguments is None else arguments)
    began = process_began() if arguments is None else time.monotonic()
    debug = "--debug" in argv
    atexit.unregister(gc.freeze)
    atexit.register(gc.freeze)  # with PyTorch loaded, Python's garbage collection at exit takes half a second
    from glassformer.base.files import convert_os_errors

    interrupts: list[int] = []
    try:
        if not argv or argv[0] in ("-h", "--help", "help", "--version"):
            with convert_os_errors(Path("standard output")):
                print(f"glass {__version__}" if argv[:1] == ["--version"] else overview(), flush=True)
            return 0
        if argv[0] not in COMMANDS:
            raise GlassError(f"there is no command {argv[0]!r}", nearest(argv[0], COMMANDS))
        _write_utf8()
        command = command_module(argv[0])
        with noted_interrupts(interrupts), convert_os_errors(Path("standard output")), convert_memory_errors():
            parsed = _parse(argv[0], command, argv[1:], began)
            with _outputs_locked(parsed.outputs):
                code = int(command.run(parsed) or 0)
            sys.stdout.flush()
        return code
    except ReportedElsewhereError:
        return 2
    except GlassError as error:
        _flush_output()
        if debug:
            traceback.print_exc()
        print(error, file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # the program that reads the output has ended, as `head` does
        _flush_output()
        return 0
    except ModuleNotFoundError as error:
        if debug:
            raise
        print(f"the package {error.name} is not installed", file=sys.stderr)
        print(f"Install glassformer with the packages that it needs: {install_command()}", file=sys.stderr)
        return 2
    except Exception as error:
        if interrupts:  # a library replaced KeyboardInterrupt by an error of its own
            return 130
        if debug:
            raise
        print(f"unexpected: {type(error).__name__}: {' '.join(str(error).split())[:300]}", file=sys.stderr)
        print("This is a bug in glassformer. Run again with --debug for a traceback, and report it.", file=sys.stderr)
        return 1


@contextmanager
def _outputs_locked(outputs: Mapping[str, Path]) -> Iterator[None]:
    """Hold the locks of the paths that a command writes, by option, while the command runs.

    Of the processes of torchrun, only the first one writes, and only its lock is held.
    """
    with ExitStack() as stack:
        if outputs and os.environ.get("RANK", "0") == "0":
            from glassformer.base.locks import output_lock

            for option, path in outputs.items():
                stack.enter_context(output_lock(path, option))
        yield


@contextmanager
def noted_interrupts(interrupts: list[int]) -> Iterator[None]:
    """Record each Ctrl-C inside the context: append the signal number to `interrupts` and raise KeyboardInterrupt.

    The record is needed because PyTorch replaces a KeyboardInterrupt that reaches some of its functions, such as
    `torch.asarray`, by a ValueError. Nothing is recorded outside the main thread, or if SIGINT has a handler other than
    Python's default.
    """
    has_default_handler = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if not has_default_handler or threading.current_thread() is not threading.main_thread():
        yield
        return

    def note(number: int, frame: FrameType | None) -> None:
        interrupts.append(number)
        signal.default_int_handler(number, frame)

    signal.signal(signal.SIGINT, note)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def overview() -> str:
    """Return the text of `glass --help`, without importing the command modules, which would be slow."""
    width = max(map(len, COMMANDS))
    lines = ["glass: the transformer you can see through", ""]
    for group, names in GROUPS.items():
        lines += [group, *(f"  glass {name:<{width}}  {COMMANDS[name]}" for name in names), ""]
    return "\n".join([*lines, "glass COMMAND --help explains a command."])


def command_module(name: str) -> ModuleType:
    """Import the module of a command, which has `add_arguments` and `run`.

    The module is in this package and has the command's name, with an underscore if the name is a Python keyword
    (`import_`). The module of the course is found by its entry point.

    Raises:
        GlassError: the course is not installed.
    """
    if name == COURSE:
        from glassformer.app.course import course_module

        return course_module("command")
    return importlib.import_module(f"glassformer.app.cli.{name}_" if iskeyword(name) else f"glassformer.app.cli.{name}")


def _flush_output() -> None:
    """Flush standard output; discard it if it cannot be written, so that Python prints no error at exit."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _open_closed_streams() -> None:
    """Connect standard streams that are closed (as after `2>&-`) to the null device.

    Python sets them to None, so that `print` to standard error would write to standard output. The next files to be
    opened would get the free descriptors 0 to 2, and messages of compiled code would be written into them.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):  # by descriptor: the lowest free one is used
        if getattr(sys, name) is None:
            descriptor = os.open(os.devnull, os.O_RDWR)
            os.set_inheritable(descriptor, True)
            setattr(sys, name, os.fdopen(descriptor, mode, encoding="utf-8"))


class _StandardError(io.FileIO):
    """Standard error that discards what cannot be written, as on a full disk or after its reader has ended."""

    def write(self, data: Any, /) -> int:
        """Write bytes, and return their number, even if they cannot be written."""
        try:
            return super().write(data)
        except OSError:
            return len(data)


def _outlive_standard_error() -> None:
    """Let no command fail because a message cannot be written to standard error; a terminal always takes them."""
    stream = sys.__stderr__
    if stream is not None and stream is sys.stderr and not stream.isatty():
        raw = _StandardError(stream.fileno(), "w", closefd=False)
        sys.stderr = io.TextIOWrapper(
            io.BufferedWriter(raw), encoding="utf-8", errors="backslashreplace", line_buffering=True
        )


def _write_utf8() -> None:
    """Set standard output and standard error to UTF-8, so that text in any script can be printed on every system."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(encoding="utf-8", errors="replace")


def _parse(name: str, command: ModuleType, arguments: Sequence[str], began: float) -> argparse.Namespace:
    """Parse the arguments of a command.

    Args:
        name: name of the command.
        command: module of the command.
        arguments: arguments after the command's name.
        began: value of `time.monotonic` at the start of the process or, if `main` was called with arguments, of `main`;
            commands read it as `arguments.began`.
    """
    parser = Parser(prog=f"glass {name}", description=command.__doc__, allow_abbrev=False)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--json", action="store_true", help="print one JSON object on standard output")
    parser.add_argument("--debug", action="store_true", help="print the traceback of an error")
    command.add_arguments(parser)
    parser.set_defaults(began=began)
    parser.usage = " ".join(
        [parser.prog, *parser.usage_names(), "[OPTIONS]"]
    )  # up to a hundred options would fill the screen
    parsed = parser.parse_all(arguments)
    parsed.outputs = parser.outputs(parsed)
    return parsed
