"""Command-line arguments that describe a new run, and their conversion to a `RunRequest`."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path

from glassformer.app.cli.settings import add_setting_flags, add_short_flags, changes_from
from glassformer.app.cli.texts import as_utf8
from glassformer.base.config import Config
from glassformer.base.errors import GlassError, nearest_file
from glassformer.base.files import output_path
from glassformer.base.recipes import recipe_names
from glassformer.launch.request import RunRequest, source_settings


def add_run_arguments(
    parser: argparse.ArgumentParser,
    out_help: str = "the run folder (default: runs/NAME-OF-DATA)",
    out_type: Callable[[str], Path] = output_path,
) -> None:
    """Add the arguments that describe a new run; `out_help` and `out_type` are of `--out`."""
    parser.add_argument("data", nargs="?", metavar="DATA", help="training data (data.source)")
    parser.add_argument(
        "target", nargs="?", metavar="TARGET", help="file with the targets, parallel to DATA (data.target)"
    )
    parser.add_argument("--out", type=out_type, metavar="RUN", help=out_help)
    add_chat_template_argument(parser)
    parser.add_argument(
        "--recipe", metavar="NAME", help=f"recipe, a named set of settings: {', '.join(recipe_names())}"
    )
    parser.add_argument("--config", type=Path, metavar="FILE", help="TOML file with settings that override the recipe")
    add_short_flags(parser)
    add_setting_flags(parser, Config.model_fields)


def add_chat_template_argument(parser: argparse.ArgumentParser) -> None:
    """Add `--chat-template`."""
    parser.add_argument(
        "--chat-template",
        type=Path,
        metavar="FILE",
        help="file with a Jinja chat template, for task chat (sets data.chat_template)",
    )


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
    sources = source_settings(arguments.data, arguments.target)
    return changes_from(arguments, sources | chat_template_setting(arguments.chat_template))


def chat_template_setting(path: Path | None) -> dict[str, str]:
    """Return the setting of the chat template in a file; empty if the file is None.

    Raises:
        GlassError: the file does not exist, cannot be read, or is not UTF-8.
    """
    if path is None:
        return {}
    try:
        return {"data.chat_template": json.dumps(as_utf8(path.read_bytes(), str(path)), ensure_ascii=False)}
    except FileNotFoundError:
        raise GlassError(f"{path} does not exist", nearest_file(path, "Give a file with a Jinja template.")) from None
    except OSError as error:
        raise GlassError(f"{path} cannot be read: {error.strerror}", "Give a file with a Jinja template.") from None
