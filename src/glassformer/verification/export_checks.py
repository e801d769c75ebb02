"""Check of the run's export to the Hugging Face format."""

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
    """Export the run to the Hugging Face format, and compare the outputs of transformers with those of the run.

    Each comparison has its own limit; the measured value is the largest ratio of a difference to its limit.
    """
    with tempfile.TemporaryDirectory(prefix="glass-verify-", ignore_cleanup_errors=True) as temporary:
        report = export(ExportRequest(subject.folder, Path(temporary) / "hf", subject.which))
    comparisons = "; ".join(f"{each.name} {each.value:.1e} (limit {each.limit:.0e})" for each in report.measured)
    limit_fractions = (
        each.value / each.limit if each.limit else math.inf if each.value else 0.0 for each in report.measured
    )
    return Finding(max(limit_fractions), f"{report.architecture}: {comparisons}")


def not_exported(subject: VerifiedRun) -> str | None:
    """Return the reason why the run cannot be exported and loaded in transformers; None if it can."""
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
        "the run gives the same results after its export to Hugging Face",
        1,
        "times the limit of each comparison",
        export_hf,
        not_exported,
    ),
)
