"""Roles of attention heads, each with a score, its chance level and a confidence interval.

`attention_arrays`, `roles`, `cross`, `copying`, `numbers` and `role_scores` compute scores and statistics, mostly from
arrays of attention weights. `probes`, `relations` and `texts` create the input sequences, `passes` runs the model on
these sequences, and `survey` combines all steps. `of_run` applies the survey to a run.
"""

from glassformer.inspection.heads.attention_arrays import AttentionArrays, make_attention_arrays
from glassformer.inspection.heads.probes import HeadProbe
from glassformer.inspection.heads.report import HeadReport, HeadSurvey
from glassformer.inspection.heads.role_scores import RoleScore, RoleTally, score_heads
from glassformer.inspection.heads.survey import TokenFacts, survey

__all__ = [
    "AttentionArrays",
    "HeadProbe",
    "HeadReport",
    "HeadSurvey",
    "RoleScore",
    "RoleTally",
    "TokenFacts",
    "make_attention_arrays",
    "score_heads",
    "survey",
]
