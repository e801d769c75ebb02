"""Plans: the documents to keep and their split, written by the stage `decide` for later stages.

A plan is a NumPy archive of plain arrays, one of which contains JSON. Nothing is unpickled, because the work folder may
be on a disk that other users can write to, and reading a plan must not run code.
"""

from __future__ import annotations

import io
import json
import zipfile
from array import array
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from glassformer.base.errors import MALFORMED, GlassError
from glassformer.base.files import write_bytes
from glassformer.text.records import RecordKind
from glassformer.text.split import DocumentSplit
from glassformer.text.survey import Facts, Survey

COUNTS = ("records", "characters", "start_step", "last_length")
ARRAYS = ("starts", "marks", "bucket_documents", "bucket_characters")


@dataclass(frozen=True)
class PartPlan:
    """The kept documents of a part or of the whole text, and their split.

    Attributes:
        start: number of characters in kept documents before the part; 0 for the whole text.
        split: the split; for a random split, its `limit` is the number of validation characters left at the start of
            the part.
        survey: the survey; for a part, only `large` and `repeated` are set, and its first document is number 0.
    """

    start: int
    split: DocumentSplit
    survey: Survey


def write_plan(path: Path, plan: PartPlan) -> None:
    """Write a plan atomically."""
    survey = plan.survey
    facts = {
        "start": plan.start,
        "split": asdict(plan.split),
        "counts": {name: getattr(survey, name) for name in COUNTS},
        "tally": survey.tally.as_json(),
        "large": [
            [index, each.characters, each.words, each.mark, each.bands.hex()] for index, each in survey.large.items()
        ],
    }
    arrays = {name: np.frombuffer(getattr(survey, name), np.uint64) for name in ARRAYS}
    arrays["repeated"] = np.frombuffer(survey.repeated, np.uint8)
    arrays["facts"] = np.frombuffer(json.dumps(facts).encode("utf-8"), np.uint8)
    packed = io.BytesIO()
    np.savez(packed, allow_pickle=False, **arrays)
    write_bytes(path, packed.getvalue())


def read_plan(kind: RecordKind, path: Path) -> PartPlan:
    """Return the plan that `write_plan` wrote.

    Raises:
        GlassError: the file cannot be read, is damaged or is not a plan.
    """
    try:
        with np.load(io.BytesIO(path.read_bytes()), allow_pickle=False) as stored:
            arrays = {name: np.asarray(stored[name]) for name in (*ARRAYS, "repeated", "facts")}
        facts = json.loads(arrays["facts"].tobytes().decode("utf-8"))
        large = {
            int(index): Facts(int(characters), int(words), int(mark), bytes.fromhex(bands))
            for index, characters, words, mark, bands in facts["large"]
        }
        survey = Survey(kind, large=large, repeated=arrays["repeated"].tobytes())
        survey.tally.add(facts["tally"])
        for name in COUNTS:
            setattr(survey, name, int(facts["counts"][name]))
        for name in ARRAYS:
            setattr(survey, name, array("Q", arrays[name].tobytes()))
        return PartPlan(int(facts["start"]), DocumentSplit(**facts["split"]), survey)
    except (OSError, EOFError, zipfile.BadZipFile, *MALFORMED) as error:
        raise GlassError(
            f"the plan {path} cannot be read: {error}",
            f"Delete {path.parents[1]} and encode the text again.",
        ) from None
