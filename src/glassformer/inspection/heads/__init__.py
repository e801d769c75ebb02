"""Roles of every attention head, each with its score, its chance level and an interval.

`looks`, `roles`, `cross`, `copying`, `numbers` and `tallies` work on arrays of attention weights alone; `probes` makes
the texts, `passes` sends them through a model, `survey` does it all.
"""

from glassformer.inspection.heads.looks import Looks, looks
from glassformer.inspection.heads.probes import Probe
from glassformer.inspection.heads.report import HeadReport, Report
from glassformer.inspection.heads.survey import Known, survey
from glassformer.inspection.heads.tallies import Scored, Tally, judge

__all__ = ["HeadReport", "Known", "Looks", "Probe", "Report", "Scored", "Tally", "judge", "looks", "survey"]
