"""Command-line arguments that describe a new run, and their conversion to a `RunRequest`."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from glassformer.app.cli.settings import add_setting_flags, add_short_flags, changes_from
from glassformer.app.cli.texts import as_utf8
from glassformer.base.config import Config
from glassformer.base.errors import GlassError, nearest_file
from glassformer.base.recipes import recipe_names
from glassformer.launch.request import RunRequest, source_settings


def add_run_arguments(
    parser: argparse.ArgumentParser, out_help: str = "the run folder (default: runs/NAME-OF-DATA)"
) -> None:
    """Add the arguments that describe a new run; `out_help` is the help text of `--out`."""
    parser.add_argument("data", nargs="?", metavar="DATA", help="training data (data.source)")
    parser.add_argument(
        "target", nargs="?", metavar="TARGET", help="file with the targets, parallel to DATA (data.target)"
    )
    parser.add_argument("--out", type=Path, metavar="RUN", help=out_help)
    parser.add_argument(
        "--chat-template",
        type=Path,
        metavar="FILE",
        help="file with a Jinja chat template, for task chat (sets data.chat_template)",
    )
    parser.add_argument(
        "--recipe", metavar="NAME", help=f"recipe, a named set of settings: {', '.join(recipe_names())}"
    )
    parser.add_argument("--config", type=Path, metavar="FILE", help="TOML file with settings that override the recipe")
    add_short_flags(parser)
    add_setting_flags(parser, Config.model_fields)


def add_from_argument(parser: argparse.ArgumentParser) -> None:
    """Add `--from`, the run to start from."""
    parser.add_argument(
        "--from", dest="begin_from", type=Path, metavar="RUN", help="start from the tokenizer and weights of this run"
    )


def request_from(arguments: argparse.Namespace) -> RunRequest:
    """Return the request for the run that the arguments describe."""
    changes = given_settings(arguments)
    return RunRequest(changes, arguments.recipe, arguments.config, arguments.out, arguments.begin_from)


def given_settings(arguments: argparse.Namespace) -> dict[str, str]:
    """Return the settings in the arguments, with the data files and the text of the chat template."""
    changes = changes_from(arguments) | source_settings(arguments.data, arguments.target)
    if arguments.chat_template is not None:
        changes["data.chat_template"] = json.dumps(_template(arguments.chat_template), ensure_ascii=False)
    return changes


def _template(path: Path) -> str:
    """Return the text of a chat template.

    Raises:
        GlassError: the file does not exist, cannot be read, or is not UTF-8.
    """
    try:
        return as_utf8(path.read_bytes(), str(path))
    except FileNotFoundError:
        raise GlassError(f"{path} does not exist", nearest_file(path, "Give a file with a Jinja template.")) from None
    except OSError as error:
        raise GlassError(f"{path} cannot be read: {error.strerror}", "Give a file with a Jinja template.") from None
