"""Reports of the measurements: JSON, Markdown tables and a chart."""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Any

from peers.rows import OURS

Found = dict[str, Any]
SHOWN = (
    "share_of_peak",
    "exponent",
    "loss",
    "reached",
    "equal_rows",
    "equal_texts",
    "weight_gb_read_per_second",
    "bytes_per_token",
    "seconds_of_training",
)


def write(folder: Path, found: Found) -> None:
    """Write `results.json` and `results.md`; also `results.svg` if matplotlib is installed and there are ratios."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "results.json").write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    (folder / "results.md").write_text(markdown(found), encoding="utf-8")
    draw(folder / "results.svg", found["results"])


def markdown(found: Found) -> str:
    """Return the Markdown report, with a line for each measurement and each library."""
    machine = found["machine"]
    peaks = found["peaks"]
    versions = ", ".join(f"{name} {number}" for name, number in machine["versions"].items() if number)
    restriction = f", restricted to {machine['instruction_set']}" if machine.get("restricted_by") else ""
    threads = "1 thread" if machine["threads"] == 1 else f"{machine['threads']} threads"
    lines = [
        "# Comparison with other libraries",
        "",
        *([f"On the GPU: {machine['gpu']}."] if found["settings"].get("device", "cpu") != "cpu" else []),
        f"{machine['processor']}{restriction}, {machine['cores']} cores ({threads} used), "
        f"{machine['memory_gb']} GB, {machine['system']}, Python {machine['python']}; {versions}.",
        f"Load average at the start: {machine['load']} (if it is above 0.5, other processes may have affected the "
        "results).",
        "",
        f"Peaks of the CPU, measured in this run: {peaks['fp32_gflops']} GFLOP/s for matrix multiplications in fp32, "
        f"{peaks['bf16_gflops']} GFLOP/s in bf16, and a memory bandwidth of {peaks['memory_gb_per_second']} GB/s.",
        "",
        f"Each value is the median of its turns (at most {found['settings']['repeats']}). Times are "
        f"{found['settings']['clock']} times. A ratio shows how many times better glassformer is (its first line for "
        "the same work): the median over the turns, with the lowest and the highest value in brackets.",
    ]
    kind = None
    for row in found["results"]:
        if row["kind"] != kind:
            kind = row["kind"]
            lines += [
                "",
                f"## {kind[0].upper()}{kind[1:]}",
                "",
                "| work | library | median | unit | ratio |",
                "|---|---|---|---|---|",
            ]
        lines += [_line(row, name) for name in row["median"]]
        lines += [f"| | {_label(name)} | {_words(row[name])} | | |" for name in SHOWN if row.get(name)]
    return "\n".join(lines) + "\n"


def _label(name: str) -> str:
    return "weights read, in GB/s" if name == "weight_gb_read_per_second" else name.replace("_", " ")


def _line(row: Found, name: str) -> str:
    ratio = row["ratio"].get(name)
    words = f"{ratio['median']:.2f} ({ratio['lowest']:.2f} to {ratio['highest']:.2f})" if ratio else ""
    return f"| {row['work']} | {name} | {row['median'][name]:,.4g} | {row['unit']} | {words} |"


def _words(value: Any) -> str:
    return ", ".join(f"{name}: {each}" for name, each in value.items()) if isinstance(value, dict) else str(value)


def draw(path: Path, rows: list[Found]) -> None:
    """Draw a bar for each ratio, on a logarithmic axis, with a line from the lowest turn to the highest.

    Do nothing without matplotlib or without ratios.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return
    bars = [bar for row in rows for bar in _bars(row)]
    if not bars:
        return
    figure = Figure(figsize=(11, 1.2 + 0.28 * len(bars)), layout="constrained")
    axes = figure.subplots()
    for index, (_, ratio) in enumerate(bars):
        better = ratio["median"] >= 1
        axes.barh(index, ratio["median"] - 1, left=1, color="#2a6f97" if better else "#c1666b")
        axes.plot([ratio["lowest"], ratio["highest"]], [index, index], color="black", linewidth=1)
    axes.set_yticks(range(len(bars)), [label for label, _ in bars], fontsize=7)
    axes.set_xscale("log")
    for of_ticks in (axes.xaxis.set_major_formatter, axes.xaxis.set_minor_formatter):
        of_ticks(lambda ratio, index: f"{ratio:g}")
    axes.axvline(1, color="black", linewidth=0.8)
    axes.invert_yaxis()
    axes.set_xlabel("how many times better ours is (speed, 1 / seconds or 1 / memory);\nline: lowest to highest turn")
    figure.savefig(path, metadata={"Date": None})


def _bars(row: Found) -> list[tuple[str, dict[str, float]]]:
    """Return a label and the ratio (median, lowest, highest) for each of our variants compared with each peer."""
    turns = row["turns"]
    more_is_better = row["unit"].endswith("/s")
    bars = []
    for own in (name for name in turns if name.startswith(OURS)):
        for peer in row["ratio"]:
            ratios = [
                ours / theirs if more_is_better else theirs / ours
                for ours, theirs in zip(turns[own], turns[peer], strict=True)
            ]
            ratio = {"median": statistics.median(ratios), "lowest": min(ratios), "highest": max(ratios)}
            bars.append((f"{row['kind']}: {row['work']}, {own} / {peer}", ratio))
    return bars
