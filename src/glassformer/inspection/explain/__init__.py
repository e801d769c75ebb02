"""Explanation of one forward pass step by step, as data, terminal text, HTML page and JSON.

A *walk* lists the matrices of a forward pass in the order of computation, with their formulas, grouped into sections.
"""

from glassformer.base.wording import LEVELS, Level
from glassformer.inspection.explain.example import example
from glassformer.inspection.explain.sections import Matrix, Section, SectionTable, Walk
from glassformer.inspection.explain.subject import Subject, subject_of, unshortened_subject_of
from glassformer.inspection.explain.tape import Tape, make_tape, tape_bytes
from glassformer.inspection.explain.walk import make_walk

__all__ = [
    "LEVELS",
    "Level",
    "Matrix",
    "Section",
    "SectionTable",
    "Subject",
    "Tape",
    "Walk",
    "example",
    "make_tape",
    "make_walk",
    "subject_of",
    "tape_bytes",
    "unshortened_subject_of",
]
