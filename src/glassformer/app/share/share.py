"""Write the HTML file of a run under a temporary name, read it back, compare it with the run, and rename it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import get_args

from glassformer.app.share.checks import Rounding, compare
from glassformer.app.share.loading import load_shared
from glassformer.app.share.package import Json, Package, make_package
from glassformer.app.share.quantize import Bits
from glassformer.base.config import ModelConfig
from glassformer.base.errors import GlassError
from glassformer.base.files import atomic_file, refuse_no_file
from glassformer.base.wording import counted
from glassformer.runs.folder import Which
from glassformer.runs.opening import OpenedRun

MOST_BYTES = 40_000_000
"""Maximum size in bytes of the weights in base64; larger files are too large for e-mail and for a phone's memory."""
MOST_EXAMPLES = 50
"""Maximum number of example texts in the page."""
COMPARED_EXAMPLES = 8
"""Maximum number of examples on which the effect of rounding is measured."""
SUPPORTED_SETTINGS = {
    "positions": ("learned", "sinusoidal", "rotary", "alibi", "relative", "none"),
    "activation": ("relu", "relu2", "gelu", "gelu_tanh", "geglu", "swiglu"),
}
"""Values of `model.*` settings that the page (`web/src/share`) supports."""


def _ignore_message(text: str) -> None:
    """Ignore a progress message."""


@dataclass(frozen=True)
class ShareRequest:
    """Settings of `glass share`: the run, the output file, and the precision of the weights.

    Attributes:
        folder: run folder.
        out: path of the file; an existing file is replaced.
        bits: bits per weight of a matrix: 8 (integers with a scale for each row), 16 or 32 (floats).
        examples: example texts for the page, at most 50; empty: the first text that `glass serve` shows for the run.
        which: checkpoint to load, "best" or "last".
        note: function that receives progress messages.
    """

    folder: Path
    out: Path
    bits: Bits = 8
    examples: Sequence[str] = ()
    which: Which = "best"
    note: Callable[[str], None] = _ignore_message


@dataclass(frozen=True)
class ShareReport:
    """Summary of the written file: its size, and the effect of rounding the weights.

    Attributes:
        out: path of the file.
        bytes: size of the file in bytes.
        parameters: number of parameters of the model.
        bits: bits per weight of a matrix.
        rounding: effect of rounding the weights.
    """

    out: Path
    bytes: int
    parameters: int
    bits: int
    rounding: Rounding

    def facts(self) -> Json:
        """Return the fields for `--json`."""
        measured = {key: value for key, value in self.rounding.facts().items() if key != "row"}
        return {
            "file": str(self.out),
            "bytes": self.bytes,
            "parameters": self.parameters,
            "bits": self.bits,
            **measured,
        }

    def text(self) -> str:
        """Return the report as text for the terminal."""
        rounding = self.rounding
        return "\n".join(
            [
                f"{self.out}: {self.bytes / 1e6:,.2f} MB, {self.parameters:,} parameters, "
                f"{self.bits} bits per weight of a matrix",
                f"  read back and compared with the run on {counted(rounding.places, 'predictions')}:",
                f"  loss {rounding.loss:.4f} in the run, {rounding.loss_shared:.4f} in the file; the same likeliest "
                f"answer in {rounding.same_choice:.1%} of the predictions; "
                f"probabilities differ by at most {rounding.largest_difference:.2g}",
                "Open it in a browser: it needs no server and no network.",
            ]
        )


def share_run(request: ShareRequest) -> ShareReport:
    """Write a run to one HTML file, and return the report.

    Raises:
        GlassError: `bits` is not 8, 16 or 32, there are more than 50 examples, `out` is a folder or is in no existing
            folder, the run cannot be read, the file would be too large, the page does not support the model or the
            tokenizer, an example does not fit the task, or writing fails. In each case, no new file is left, and an
            existing file at `out` is not changed.
    """
    if request.bits not in get_args(Bits):
        raise GlassError(f"--bits {request.bits} is not allowed", "Give 8, 16 or 32.")
    if len(request.examples) > MOST_EXAMPLES:
        raise GlassError(f"{len(request.examples)} examples are too many", f"Give at most {MOST_EXAMPLES} examples.")
    refuse_no_file(request.out)
    opened = OpenedRun.load(request.folder, request.which, device="cpu")
    _refuse_unsupported_setting(opened.config.model)
    request.note(f"rounding the weights to {request.bits} bits" if request.bits < 32 else "packing the weights")
    package = make_package(opened, request.bits, request.examples)
    _refuse_large(package, request)
    with atomic_file(request.out) as temporary:
        _write(package, temporary)
        request.note("reading the file back and comparing it with the run")
        texts = package.header["examples"][:COMPARED_EXAMPLES]
        rounding = compare(opened.text_model, load_shared(temporary), texts)
        checked_package = replace(package, header={**package.header, "check": rounding.facts()})
        _write(checked_package, temporary)
        _refuse_different_contents(checked_package, Package.read(temporary), request.out)
        size = temporary.stat().st_size
    return ShareReport(request.out, size, package.header["run"]["parameters"], request.bits, rounding)


def _write(package: Package, path: Path) -> None:
    path.write_text(package.page(), encoding="utf-8", newline="\n")


def _refuse_unsupported_setting(config: ModelConfig) -> None:
    """Raise a `GlassError` if the page does not support a setting of the model."""
    if not config.output_projection:
        raise GlassError(
            "the page does not support model.output_projection = false",
            "Use a run with model.output_projection = true, or use glass serve.",
        )
    if config.U != config.K:
        raise GlassError(
            f"the page does not support model.value_width = {config.U} with heads of width {config.K}",
            "Use a run with model.value_width = unset, or use glass serve.",
        )
    for name, computed in SUPPORTED_SETTINGS.items():
        value = getattr(config, name)
        if value not in computed:
            raise GlassError(
                f"the page does not support model.{name} = {value}",
                f"Use a run with model.{name} set to one of {', '.join(computed)}, or use glass serve.",
            )


def _refuse_large(package: Package, request: ShareRequest) -> None:
    """Raise a `GlassError` if the file would be too large; it consists mostly of the weights in base64."""
    size = len(package.data) * 4 // 3
    if size <= MOST_BYTES:
        return
    parameters = package.header["run"]["parameters"]
    fits = next((bits for bits in (16, 8) if bits < request.bits and size * bits <= MOST_BYTES * request.bits), None)
    fewer = "a smaller model" if fits is None else f"--bits {fits}, or a smaller model"
    raise GlassError(
        f"{request.folder} has {parameters:,} parameters: with {request.bits} bits per weight, the file would be "
        f"{size / 1e6:.0f} MB, but at most {MOST_BYTES / 1e6:.0f} MB are allowed",
        f"Use {fewer}, or use glass serve, which shows runs of any size.",
    )


def _refuse_different_contents(written: Package, read: Package, path: Path) -> None:
    """Raise a `GlassError` if the contents read from the disk differ from the contents written to it."""
    if written != read:
        raise GlassError(
            f"the contents read from {path} differ from the contents written to it", "Check the disk, and try again."
        )
