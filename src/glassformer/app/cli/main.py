"""The command line: a table of commands. Each command parses, calls the library, prints."""

from __future__ import annotations

import argparse
import atexit
import gc
import importlib
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from keyword import iskeyword
from pathlib import Path
from types import FrameType, ModuleType
from typing import NoReturn

from glassformer.base.errors import GlassError, SaidElsewhereError, clear_memory_errors, nearest
from glassformer.training.clock import process_began

COMMANDS = {
    "demo": "train a tiny model on generated stories and show what it writes; under 3 minutes, no download",
    "plan": "before a run: size, steps, time, memory and what to beat, measured on this machine in seconds",
    "train": "train a model on your own text",
    "generate": "continue, translate or summarize a text with a trained model",
    "chat": "talk with a run that learnt conversations",
    "classify": "name the label of a text with a trained classifier",
    "fill": "fill in the [MASK]s of a text with a trained encoder",
    "evaluate": "how good a run is: loss, BLEU, ROUGE or accuracy by its task, with intervals and baselines",
    "probe": "what a run knows: agreement, coreference, induction, recall, brackets, surprisal; beside simple rules",
    "explain": "one forward pass in numbers, step by step, for a run or a small example; also as a page",
    "receipt": "why this token: its logit as a sum of what each part gave, and the draw",
    "attribute": "where an answer comes from: parts, layers and tokens, by lens, rollout, blank-out and patching",
    "heads": "what each attention head does: its roles, with chance levels and intervals",
    "look": "draw what attention heads look at: all of them, those of a layer, or one with its tokens",
    "prune": "remove the attention heads that matter least; what single heads and whole attentions are worth",
    "serve": "show runs on a page in the browser: your own model, in glass; and an API that tools already speak",
    "share": "put a run into one HTML file that computes its views by itself: no server, no network",
    "verify": "prove a run right on its own weights: caches, masks, gradients, resuming, files, each against a limit",
    "compare": "train a grid of settings with several seeds, and say what differs for certain; studies are built in",
    "export": "take a run away, as a Hugging Face folder, ONNX or GGUF; loaded back and compared first",
    "import": "bring in a model that transformers saved, as a run like any other",
    "count": "parameters, bytes, arithmetic and cache of a run or recipe, by component",
    "learn": "self-checking exercises, a bug lab and a glossary; assignments and grading for teachers",
    "data": "list the generated corpora and recipes, print a corpus, look at a text, encode one for many runs",
    "doctor": "look at this machine and check what its devices compute",
}
"""Name -> what it does. `command_module` imports the module that has its `add_arguments` and `run`."""
COURSE = "learn"
"""The command that belongs to the course, a package of its own."""


class Parser(argparse.ArgumentParser):
    """argparse, with our errors: two lines, and the nearest valid name."""

    def error(self, message: str) -> NoReturn:
        """Raise instead of printing the usage."""
        raise GlassError(message, f"See {self.prog} --help.")

    def positionals(self) -> list[argparse.Action]:
        """The arguments that are not options."""
        return self._get_positional_actions()

    def parse_all(self, arguments: Sequence[str]) -> argparse.Namespace:
        """Parse; an unknown option is refused with the nearest one."""
        parsed, rest = self.parse_known_intermixed_args(arguments)
        if rest:
            option = rest[0].split("=")[0]
            if not option.startswith("-"):
                raise GlassError(f"unexpected argument {option!r}", f"See {self.prog} --help.")
            raise GlassError(f"unknown option {option}", nearest(option, self._option_string_actions))
        return parsed


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code: 0 done, 1 a fault of ours, 2 a mistake to put right, 130 stopped."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if not words or words[0] in ("-h", "--help", "help"):
        print(overview())
        return 0
    if words[0] == "--version":
        from glassformer import __version__

        print(f"glass {__version__}")
        return 0
    began = process_began() if arguments is None else time.monotonic()
    debug = "--debug" in words
    atexit.unregister(gc.freeze)
    atexit.register(gc.freeze)  # with PyTorch loaded, Python's last search for cycles takes half a second
    from glassformer.base.files import clear_disk_errors

    interrupts: list[int] = []
    try:
        if words[0] not in COMMANDS:
            raise GlassError(f"there is no command {words[0]!r}", nearest(words[0], COMMANDS))
        _write_utf8()
        command = command_module(words[0])
        with noted_interrupts(interrupts), clear_disk_errors(Path("standard output")), clear_memory_errors():
            code = int(command.run(_parse(words[0], command, words[1:], began)) or 0)
            sys.stdout.flush()
        return code
    except SaidElsewhereError:
        return 2
    except GlassError as error:
        _let_go_of_output()
        if debug:
            traceback.print_exc()
        print(error, file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # the reader of our output has gone, as `head` does
        _let_go_of_output()
        return 0
    except Exception as error:
        if interrupts:  # inside a library, which made an error of its own out of KeyboardInterrupt
            return 130
        if debug:
            raise
        print(f"unexpected: {type(error).__name__}: {' '.join(str(error).split())[:300]}", file=sys.stderr)
        print("This is a fault in glassformer. Run again with --debug to see where, and report it.", file=sys.stderr)
        return 1


@contextmanager
def noted_interrupts(interrupts: list[int]) -> Iterator[None]:
    """Add the number of SIGINT to `interrupts` whenever Ctrl-C raises KeyboardInterrupt inside.

    PyTorch replaces a KeyboardInterrupt that reaches some of its functions, such as `torch.asarray`, by a ValueError.
    """
    is_ours = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if not is_ours or threading.current_thread() is not threading.main_thread():
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
    """What `glass --help` prints; made from the table alone, so that it answers at once."""
    width = max(map(len, COMMANDS))
    lines = [f"  glass {name:<{width}}  {text}" for name, text in COMMANDS.items()]
    return "\n".join(
        ["glass: the transformer you can see through", "", *lines, "", "glass COMMAND --help explains a command."]
    )


def command_module(name: str) -> ModuleType:
    """Import the module of a command, which has `add_arguments` and `run`.

    It has the command's name, in this package; a name that is a word of Python has an underscore there (`import_`). The
    course's module is found by its entry point.

    Raises:
        GlassError: the course is not installed.
    """
    if name == COURSE:
        from glassformer.app.course import course_module

        return course_module("command")
    return importlib.import_module(f"glassformer.app.cli.{name}_" if iskeyword(name) else f"glassformer.app.cli.{name}")


def _let_go_of_output() -> None:
    """Write out what is printed; what cannot be written is dropped, or Python would complain of it when it ends."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _write_utf8() -> None:
    """Make standard output and error UTF-8, so that every script can be printed on every system."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(encoding="utf-8", errors="replace")


def _parse(name: str, command: ModuleType, words: Sequence[str], began: float) -> argparse.Namespace:
    """Parse the words behind the name of a command.

    Args:
        name: of the command.
        command: its module.
        words: the arguments.
        began: the reading of `time.monotonic` when the process began; commands find it as `arguments.began`.
    """
    parser = Parser(prog=f"glass {name}", description=command.__doc__, allow_abbrev=False)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--json", action="store_true", help="one JSON object on standard output")
    parser.add_argument("--debug", action="store_true", help="show where an error came from")
    command.add_arguments(parser)
    parser.set_defaults(began=began)
    places = [f"[{a.metavar}]" if a.nargs == "?" else str(a.metavar) for a in parser.positionals()]
    parser.usage = " ".join([parser.prog, *places, "[OPTIONS]"])  # a hundred options would hide what matters
    return parser.parse_all(words)
