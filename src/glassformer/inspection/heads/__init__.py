"""Roles of every attention head, each with its score, its chance level and an interval.

`looks`, `roles`, `cross`, `copying`, `numbers` and `role_scores` work on arrays of attention weights alone; `probes`
makes the texts, `passes` sends them through a model, `survey` does it all.
"""

from glassformer.inspection.heads.attention_arrays import Looks, looks
from glassformer.inspection.heads.probes import HeadProbe
from glassformer.inspection.heads.report import HeadReport, HeadSurvey
from glassformer.inspection.heads.role_scores import RoleScore, RoleTally, judge
from glassformer.inspection.heads.survey import TokenFacts, survey

__all__ = [
    "HeadProbe",
    "HeadReport",
    "HeadSurvey",
    "Looks",
    "RoleScore",
    "RoleTally",
    "TokenFacts",
    "judge",
    "looks",
    "survey",
]
