"""Attribution methods: measure how much an output of a model depends on each of its parts and on each input token."""

from glassformer.inspection.attribution.agreement import RankAgreement, agreement
from glassformer.inspection.attribution.case import AttributionCase, Output, case_of
from glassformer.inspection.attribution.flow import AttentionFlow, flow
from glassformer.inspection.attribution.grid import PatchGrid, PatchingInputs, patch_grids
from glassformer.inspection.attribution.lens import Lens, lens
from glassformer.inspection.attribution.logits import (
    LogitSplit,
    Neurons,
    split_neurons,
    split_output,
    split_outputs,
    split_residual,
)
from glassformer.inspection.attribution.occlusion import Occlusion, occlude
from glassformer.inspection.attribution.rollout import Rollout, rollout

__all__ = [
    "AttentionFlow",
    "AttributionCase",
    "Lens",
    "LogitSplit",
    "Neurons",
    "Occlusion",
    "Output",
    "PatchGrid",
    "PatchingInputs",
    "RankAgreement",
    "Rollout",
    "agreement",
    "case_of",
    "flow",
    "lens",
    "occlude",
    "patch_grids",
    "rollout",
    "split_neurons",
    "split_output",
    "split_outputs",
    "split_residual",
]
