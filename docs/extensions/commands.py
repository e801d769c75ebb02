"""Generate a page for each command, in the order of `glass --help`: help, guides, and examples with their output."""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from extensions.examples import Example
from extensions.markdown import cell, fenced, shortened
from glassformer.app.cli.main import COMMANDS, GROUPS, Parser, command_module
from glassformer.base.config import Config

FENCE = re.compile(r"^```sh\n(.*?)^```$", flags=re.MULTILINE | re.DOTALL)
CODES = """\
| exit code | meaning |
|---|---|
| 0 | success |
| 1 | a bug in glassformer, as the message says; for `verify` and `doctor` also: a check failed |
| 2 | an error that you can correct, as the message explains; for `learn lab answer` also: a wrong answer |
| 130 | stopped by Ctrl-C |
"""
"""Exit codes of `glassformer.app.cli.main.main` and of single commands."""
COMMON = ("json", "debug", "help")
"""Options of every command, which have their own table."""


def pages(docs: Path, shown: Mapping[str, list[Example]]) -> dict[str, str]:
    """Return the page of every command, and the table of commands that docs/commands.md includes."""
    rows = []
    for group, names in GROUPS.items():
        rows.append(f"| **{group}** | |")
        rows += [f"| [`glass {name}`](made/commands/{name}.md) | {cell(COMMANDS[name])} |" for name in names]
    tree = "\n".join(f"made/commands/{name}" for names in GROUPS.values() for name in names)
    table = "\n".join(["| command | what it does |", "|---|---|", *rows])
    made = {"parts/commands.md": f"{table}\n\n:::{{toctree}}\n:hidden:\n\n{tree}\n:::\n"}
    guides = guides_of(docs)
    for name in COMMANDS:
        made[f"commands/{name}.md"] = page(name, guides.get(name, []), shown.get(name, []))
    return made


def page(name: str, guides: list[tuple[str, str]], shown: list[Example]) -> str:
    """Return the page of a command.

    Args:
        name: name of the command.
        guides: (file, title) of the guides that use the command, as `guides_of` returns them.
        shown: its examples, with their output.
    """
    assert guides or shown, f"glass {name} has no example: add one to examples.toml, or use the command in a guide"
    module = command_module(name)
    parser = Parser(prog=f"glass {name}", allow_abbrev=False)
    module.add_arguments(parser)
    usage = " ".join(["glass", name, *parser.usage_names(), "[OPTIONS]"])
    parts = [f"# glass {name}", fenced("text", usage)]
    parts.append(prose(module.__doc__ or ""))
    if guides:
        links = ", ".join(f"[{title}](../../{file})" for file, title in guides)
        parts.append(f"**Guides** that use this command: {links}.")
    blocks = [fenced("console", f"$ {example.command}\n{shortened(example.output)}") for example in shown]
    parts += ["## Example", *blocks] if blocks else []
    parts += ["## Options", *options(parser), "## Exit code", CODES]
    parts += [
        "## With `--json`",
        "The command prints one JSON object on standard output; progress and messages go to standard error.",
    ]
    parts += [f"Shortened output of `{e.command} --json`:\n\n{fenced('text', trimmed(e.json))}" for e in shown]
    return "\n\n".join(parts) + "\n"


def prose(text: str) -> str:
    """Convert a module's docstring to Markdown: a paragraph of `glass` or `torchrun` commands becomes a code block."""
    blocks = []
    for block in text.strip().split("\n\n"):
        lines = [line.strip() for line in block.splitlines()]
        is_code = all(line.startswith(("glass ", "torchrun ")) for line in lines)
        blocks.append(fenced("sh", "\n".join(lines)) if is_code else "\n".join(lines))
    return "\n\n".join(blocks)


def options(parser: Parser) -> Iterator[str]:
    """Yield a table of the positional arguments, tables of the options, and a line for each section of settings."""
    words = [(str(action.metavar), action) for action in parser.positionals()]
    if words:
        yield table("argument", words)
    for group in parser._action_groups[1:]:
        actions = [action for action in group._group_actions if action.dest not in COMMON]
        section = (group.title or "").split(":")[0]
        if not actions:
            continue
        if section in Config.model_fields and actions[0].option_strings[0].startswith(f"--{section}."):
            yield (
                f"`--{section}.FIELD VALUE`: any of the {len(actions)} [settings of {section}]"
                f"(../../settings.md#{section}), such as `{actions[0].option_strings[0]}`."
            )
            continue
        if group.title != "options":
            yield f"**{group.title}**"
        yield table("option", [(named(action), action) for action in actions])
    yield table("options of every command", [(named(action), action) for action in common()])


def common() -> list[argparse.Action]:
    """Return the options of every command, except `--help`."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--json", action="store_true", help="print one JSON object on standard output")
    parser.add_argument("--debug", action="store_true", help="print the traceback of an error")
    return [action for action in parser._actions if action.dest != "help"]


def named(action: argparse.Action) -> str:
    """Return the names of an option with its value, such as `--steps VALUE`."""
    value = "" if action.nargs == 0 else f" {action.metavar or ('|'.join(map(str, action.choices or ['VALUE'])))}"
    return ", ".join(action.option_strings) + value


def table(kind: str, actions: list[tuple[str, argparse.Action]]) -> str:
    """Return a table of arguments or options with their help; choices and defaults are added if the help omits them."""
    rows = [f"| {kind} | |", "|---|---|"]
    for name, action in actions:
        text = (action.help or "").replace("%%", "%")
        choices = [str(choice) for choice in action.choices or []]
        if choices and not all(choice in text for choice in choices):
            text += f"; one of {', '.join(choices)}"
        if action.default not in (None, False, []) and "default" not in text and "%(" not in text:
            text += f" (default: {action.default})"
        rows.append(f"| `{cell(name)}` | {cell(text)} |")
    return "\n".join(rows)


def guides_of(docs: Path) -> dict[str, list[tuple[str, str]]]:
    """Return, for each command, (file, title) of at most six guides in docs/ whose `sh` blocks use it.

    The guide with the command's name is first; the others follow by the number of uses.
    """
    found: dict[str, list[tuple[bool, int, str, str]]] = {}
    for file in sorted(docs.glob("*.md")):
        text = file.read_text(encoding="utf-8")
        title = re.search(r"^# (.+)$", text, flags=re.MULTILINE)
        lines = [line for block in FENCE.findall(text) for line in block.splitlines()]
        for name in COMMANDS:
            uses = sum(bool(re.match(rf"(glass|torchrun .*-m glassformer) {name}\b", line)) for line in lines)
            if uses and title:
                first = file.stem not in (name, f"{name}s")
                found.setdefault(name, []).append((first, -uses, file.name, title[1]))
    return {name: [(file, title) for _, _, file, title in sorted(uses)[:6]] for name, uses in found.items()}


def trimmed(value: Any) -> str:
    """Return a value as shortened JSON: 24 keys of an object, one item of a list, 90 characters of a text, 60 lines."""

    def cut(part: Any) -> Any:
        if isinstance(part, dict):
            return {key: cut(each) for key, each in list(part.items())[:24]}
        if isinstance(part, list):
            return [cut(part[0]), *(["…"] if len(part) > 1 else [])] if part else []
        return f"{part[:90]}…" if isinstance(part, str) and len(part) > 90 else part

    return shortened(json.dumps(cut(value), ensure_ascii=False, indent=1), 60)
