"""The option `--isa avx2`: measure as on a processor without AVX-512 and without instructions for bfloat16.

PyTorch's libraries have environment variables for this. onnxruntime has none, so a patched copy of it is used, in which
the checks for AVX-512 and AVX-VNNI (instruction CPUID, leaf 7) always fail.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import os
import re
import shutil
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

RESTRICTIONS = {
    "avx2": {
        "ATEN_CPU_CAPABILITY": "avx2",  # torch
        "ONEDNN_MAX_CPU_ISA": "AVX2",
        "MKL_ENABLE_INSTRUCTIONS": "AVX2",
        "GLASS_ISA": "avx2",  # only set here: marks a restarted program that uses the patched copy of onnxruntime
    }
}
"""Value of `--isa` -> environment variables: those of PyTorch's libraries, and `GLASS_ISA`."""

CPUID_LEAF_7_1 = rb"\xb8\x07\0\0\0\xb9\x01\0\0\0\x0f\xa2"  # mov eax, 7; mov ecx, 1; cpuid
ASKS_AVX_VNNI = re.compile(CPUID_LEAF_7_1 + rb"\xa8\x10")  # test al, 16
ASKS_AVX512F = re.compile(rb"\xf7[\xc0-\xc7]\0\0\x01\0")  # test of a register with bit 16
FAR = 200  # largest distance of the two checks, in bytes


def add_isa(parser: argparse.ArgumentParser) -> None:
    """Add the option `--isa`."""
    parser.add_argument("--isa", choices=RESTRICTIONS, help="measure as on a processor with only these instructions")


def restrict(isa: str | None) -> None:
    """Restart this program with restricted processor instructions, unless it is already restricted or `isa` is None."""
    if isa is None or RESTRICTIONS[isa].items() <= os.environ.items():
        return
    os.environ.update(RESTRICTIONS[isa])
    if importlib.util.find_spec("onnxruntime") is not None:
        folders = [str(onnxruntime_without_avx512()), os.environ.get("PYTHONPATH")]
        os.environ["PYTHONPATH"] = os.pathsep.join(folder for folder in folders if folder)
    os.execv(sys.executable, [sys.executable, *sys.argv])


def onnxruntime_without_avx512() -> Path:
    """Return a folder with a copy of onnxruntime without AVX-512, which is created once in the temporary folder."""
    version = importlib.metadata.version("onnxruntime")
    target = Path(tempfile.gettempdir()) / f"onnxruntime-{version}-avx2"
    if (target / "onnxruntime" / "__init__.py").exists():
        return target
    spec = importlib.util.find_spec("onnxruntime")
    assert spec is not None
    assert spec.origin is not None
    with tempfile.TemporaryDirectory(dir=target.parent) as made:
        shutil.copytree(Path(spec.origin).parent, Path(made) / "copy" / "onnxruntime")
        (library,) = Path(made).glob("copy/onnxruntime/capi/onnxruntime_pybind11_state*")
        library.write_bytes(answered_no(library.read_bytes()))
        with suppress(OSError):  # another benchmark has created it meanwhile
            (Path(made) / "copy").rename(target)
    return target


def answered_no(machine_code: bytes) -> bytes:
    """Return the library's code, changed so that each check for AVX-VNNI and the next check for AVX-512 fail."""
    changed = bytearray(machine_code)
    questions = list(ASKS_AVX_VNNI.finditer(machine_code))
    if not questions:
        raise SystemExit("unknown check for AVX-512 in this onnxruntime\nuninstall onnxruntime to measure without it")
    for question in questions:
        changed[question.end() - 1] = 0
        next_question = ASKS_AVX512F.search(machine_code, question.end(), question.end() + FAR)
        if next_question is None:
            raise SystemExit("found no check for AVX-512 in onnxruntime\nuninstall onnxruntime to measure without it")
        changed[next_question.end() - 2] = 0
    return bytes(changed)
