"""Run probes on a run: choose the probes that apply, and give the reason for each probe that does not apply."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from glassformer.base.errors import GlassError, nearest
from glassformer.base.wording import counted
from glassformer.evaluation.probes.own_pairs import read_pairs
from glassformer.evaluation.probes.pairs import ABOUT, corpus_pairs, probe_pairs, require_differences
from glassformer.evaluation.probes.result import ProbeResult
from glassformer.evaluation.probes.row_probabilities import PSEUDO, ScorableModel, require_scorable
from glassformer.evaluation.probes.senses import probe_senses
from glassformer.evaluation.probes.sequences import probe_induction, probe_recall
from glassformer.evaluation.probes.surprisal import SurprisalResult
from glassformer.evaluation.probes.texts import surprisal_of_file, surprisal_of_split
from glassformer.evaluation.probes.token_counts import TokenCounts
from glassformer.runs.folder import Folder, Which
from glassformer.runs.opening import OpenedRun
from glassformer.tasks import MaskFiller
from glassformer.text.prepare import Prepared

TAUGHT_BY = {
    "agreement": "agreement",
    "coreference": "coreference",
    "pronouns-bn": "pronouns-bn",
    "induction": "repeats",
    "recall": "recall",
    "brackets": "brackets",
    "senses": "senses",
}
"""Probe -> generated corpus for training the skill that the probe tests."""
PROBES = (*TAUGHT_BY, "surprisal")
SIZE = 1280
"""Default number of minimal pairs, for an interval of at most about ±2.7 %; in `agreement`, 80 for each of four cells
and four lengths."""
ROWS = 64
"""Number of rows of the probes `induction` and `recall` when `size` is 1,280 pairs."""


@dataclass(frozen=True)
class ProbeRequest:
    """A request to probe a run.

    Attributes:
        folder: run folder.
        probes: names of the probes; empty: all probes, or only those that `pairs` and `text` need.
        without: names of probes to leave out when all probes would run.
        pairs: a file of user-provided minimal pairs; None: no such probe.
        text: a file whose surprisal is measured; None: the run's own validation split.
        reading: settings of `data` for reading `text`, if it is a table.
        size: number of minimal pairs of a corpus, and of sentences of `senses`; the number of rows of `induction` and
            `recall` is proportional to it.
        seed: random seed of the probe texts.
        which: checkpoint to probe.
        device: device to compute on.
        note: function that is called with each note for the user.
        on_result: function that is called with each result as soon as it is available.
    """

    folder: Folder
    probes: Sequence[str] = ()
    without: Sequence[str] = ()
    pairs: Path | None = None
    text: Path | None = None
    reading: Mapping[str, str] = field(default_factory=dict)
    size: int = SIZE
    seed: int = 1
    which: Which = "best"
    device: str = "auto"
    note: Callable[[str], None] = lambda text: None
    on_result: Callable[[ProbeResult | SurprisalResult], None] = lambda result: None


@dataclass(frozen=True)
class ProbeReport:
    """Results of all probes of a run.

    Attributes:
        run: run folder.
        results: results of each probe.
        notes: notes on the whole report, such as probes that were left out.
    """

    run: str
    results: Sequence[ProbeResult | SurprisalResult]
    notes: Sequence[str]

    def facts(self) -> dict[str, Any]:
        """Return the results as JSON values."""
        return {
            "run": self.run,
            "notes": list(self.notes),
            "probes": {result.name: result.facts() for result in self.results},
        }

    def text(self) -> str:
        """Format the results as text."""
        return "\n\n".join(filter(None, ["\n".join(self.notes), *(result.text() for result in self.results)]))


def probe_run(request: ProbeRequest, opened: OpenedRun | None = None) -> ProbeReport:
    """Run the requested probes on a run.

    If all probes are requested, a probe that does not apply to the run is left out with a note; if probes or a text are
    named, such a probe raises an error.

    Args:
        request: probes and settings.
        opened: the loaded run, in which case `which` and `device` of the request are ignored; None: load the run.

    Raises:
        GlassError: there is no such run or probe, the run assigns no probability to tokens, a file cannot be read as
            text or pairs, a text is longer than the context, no probe is left or applies to the run, or a probe that
            was requested by name does not apply to it.
    """
    for name in request.probes:
        if name not in PROBES:
            raise GlassError(f"unknown probe {name!r}", nearest(name, PROBES))
    pairs = None if request.pairs is None else read_pairs(request.pairs)
    opened = opened or OpenedRun.load(request.folder, request.which, request.device, note=request.note)
    model = require_scorable(opened.text_model)
    data, notes = _training_data(opened)
    token_counts = None
    if data is not None:
        token_counts = TokenCounts(data.train.source.tokens, model.tokenizer.vocab_size, model.tokenizer.text_ids)
    results: list[ProbeResult | SurprisalResult] = []

    def add(result: ProbeResult | SurprisalResult) -> None:
        results.append(result)
        request.on_result(result)

    if request.pairs is not None and pairs is not None:
        about = f"{counted(len(pairs), 'minimal pairs')} of {request.pairs}"
        add(probe_pairs("pairs", about, pairs, model, token_counts))
    for name in _requested_probes(request):
        try:
            add(_run_probe(name, request, model, data, token_counts))
        except GlassError as error:
            if request.probes or request.text is not None:
                raise
            notes.append(f"{name} is left out: {error.problem}")
    if not results:
        raise GlassError(
            f"no probe applies to {request.folder}; for example, {notes[-1]}", "Name a probe to see what it needs."
        )
    return ProbeReport(str(request.folder), results, notes)


def _requested_probes(request: ProbeRequest) -> list[str]:
    """Return the names of the requested probes without repetitions, in the order of `PROBES`.

    Raises:
        GlassError: `without` names all probes.
    """
    requested = {*request.probes, *(("surprisal",) if request.text is not None else ())}
    if not requested and request.pairs is None:
        requested = {*PROBES} - {*request.without}
        if not requested:
            raise GlassError("no probe is left, because `without` names all probes", "Name fewer probes in `without`.")
    return [name for name in PROBES if name in requested]


def _training_data(opened: OpenedRun) -> tuple[Prepared | None, list[str]]:
    """Return the run's own data (None if not available) and the notes that apply to all probes."""
    notes = [PSEUDO] if isinstance(opened.text_model, MaskFiller) else []
    try:
        return opened.data, notes
    except GlassError as error:
        reason = f"unigram and bigram heuristics need the training text and are left out: {error.problem}"
        return None, [*notes, reason]


def _run_probe(
    name: str, request: ProbeRequest, model: ScorableModel, data: Prepared | None, token_counts: TokenCounts | None
) -> ProbeResult | SurprisalResult:
    if name == "surprisal":
        return _surprisal(request, model, data, token_counts)
    rows = max(1, request.size * ROWS // SIZE)
    if name == "induction":
        result = probe_induction(model, token_counts, rows, request.seed)
    elif name == "recall":
        result = probe_recall(model, token_counts, rows, request.seed)
    elif name == "senses":
        result = probe_senses(model, request.size, request.seed)
    else:
        pairs = corpus_pairs(name, request.size, request.seed)
        require_differences(model.tokenizer, pairs)
        result = probe_pairs(name, f"{counted(len(pairs), 'minimal pairs')}: {ABOUT[name]}", pairs, model, token_counts)
    source = model.config.data.source
    corpus = TAUGHT_BY[name]
    if source == corpus:
        return result
    untaught_note = (
        f"this run was not trained on the corpus {corpus}, so it may do no better than chance or a heuristic"
    )
    return replace(result, notes=[untaught_note, *result.notes])


def _surprisal(
    request: ProbeRequest, model: ScorableModel, data: Prepared | None, token_counts: TokenCounts | None
) -> SurprisalResult:
    """Measure the surprisal of the requested text, or of the run's own validation split."""
    counts = None if token_counts is None else token_counts.counts
    if request.text is not None:
        return surprisal_of_file(model, request.text, counts, request.reading, request.note)
    if data is None:
        raise GlassError("the run's own text is not available", "Name a text: --text FILE.")
    return surprisal_of_split(model, data, counts)
