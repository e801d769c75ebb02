"""Check of the exported run, as another program reads it."""

from __future__ import annotations

import importlib.util
import math
import tempfile
from pathlib import Path

from glassformer.base.errors import GlassError
from glassformer.interop.export_report import ExportRequest
from glassformer.interop.huggingface.choosing import choose
from glassformer.interop.huggingface.export import class_task, export
from glassformer.interop.huggingface.tokenizer_files import refuse_unwritable
from glassformer.verification.check import Check, Finding
from glassformer.verification.verified_run import VerifiedRun


def export_hf(subject: VerifiedRun) -> Finding:
    """Export the run to the Hugging Face format and compare it in transformers; each comparison has its own limit."""
    with tempfile.TemporaryDirectory(prefix="glass-verify-", ignore_cleanup_errors=True) as temporary:
        report = export(ExportRequest(subject.folder, Path(temporary) / "hf", subject.which))
    compared = "; ".join(f"{each.name} {each.value:.1e} (limit {each.limit:.0e})" for each in report.measured)
    shares = (each.value / each.limit if each.limit else math.inf if each.value else 0.0 for each in report.measured)
    return Finding(max(shares), f"{report.architecture}: {compared}")


def not_exported(subject: VerifiedRun) -> str | None:
    """Exempts runs that no class of Hugging Face can be, and machines without their library."""
    if importlib.util.find_spec("transformers") is None:
        return "the package transformers is not installed"
    model = subject.model
    sizes = model.config.replace(vocab_size=model.vocab_size)
    try:
        refuse_unwritable(subject.opened)
        choose(sizes, dict(model.state_dict()), class_task(subject.opened), None, None)
    except GlassError as error:
        return error.problem
    return None


CHECKS = (
    Check(
        "export-hf",
        "written for Hugging Face and read back, the run says the same",
        1,
        "of the limits of its own",
        export_hf,
        not_exported,
    ),
)
