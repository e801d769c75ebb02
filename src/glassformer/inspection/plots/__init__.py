"""Figures drawn with matplotlib: attention maps, lenses, rollouts, head roles and curves.

`record_attention_maps` records the attention of a model for `draw_attention`; the other drawing functions take plain
values. matplotlib is imported only when figures or fonts are used. All functions use the object-oriented interface of
matplotlib, so they do not change its global state.
"""

from glassformer.inspection.plots.attention import draw_attention, facts, largest_weights, record_attention_maps
from glassformer.inspection.plots.cells import SCALES, Floats, Scale, block_for, pooled
from glassformer.inspection.plots.charts import draw_curve, draw_lens, draw_roles
from glassformer.inspection.plots.fonts import Fonts, find_fonts
from glassformer.inspection.plots.maps import MapLabels, draw_maps, draw_rollout
from glassformer.inspection.plots.run_maps import AttentionMaps, find_site
from glassformer.inspection.plots.saving import refuse_no_picture, save

__all__ = [
    "SCALES",
    "AttentionMaps",
    "Floats",
    "Fonts",
    "MapLabels",
    "Scale",
    "block_for",
    "draw_attention",
    "draw_curve",
    "draw_lens",
    "draw_maps",
    "draw_roles",
    "draw_rollout",
    "facts",
    "find_fonts",
    "find_site",
    "largest_weights",
    "pooled",
    "record_attention_maps",
    "refuse_no_picture",
    "save",
]
