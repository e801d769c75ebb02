"""Attribution: which parts and which tokens an answer comes from, by several measures, each with what it cannot say."""

from glassformer.inspection.attribution.agreement import Agreement, agreement
from glassformer.inspection.attribution.blanking import Blanking, blank
from glassformer.inspection.attribution.case import Case, Output, case_of
from glassformer.inspection.attribution.flow import Flow, flow
from glassformer.inspection.attribution.grid import PatchGrid, Question, patch_grids
from glassformer.inspection.attribution.lens import Lens, lens
from glassformer.inspection.attribution.logits import (
    LogitSplit,
    Neurons,
    split_neurons,
    split_output,
    split_outputs,
    split_residual,
)
from glassformer.inspection.attribution.rollout import Rollout, rollout

__all__ = [
    "Agreement",
    "Blanking",
    "Case",
    "Flow",
    "Lens",
    "LogitSplit",
    "Neurons",
    "Output",
    "PatchGrid",
    "Question",
    "Rollout",
    "agreement",
    "blank",
    "case_of",
    "flow",
    "lens",
    "patch_grids",
    "rollout",
    "split_neurons",
    "split_output",
    "split_outputs",
    "split_residual",
]
