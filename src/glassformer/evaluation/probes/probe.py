"""Probing a run: which probes there are, what each needs, and what is said of those that a run cannot take."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from glassformer.config import DataConfig
from glassformer.data.batches import validation_rows
from glassformer.data.prepare import Prepared
from glassformer.data.store import TokenStore
from glassformer.data.whole import encode_whole
from glassformer.errors import GlassError, nearest
from glassformer.evaluation.ladder import counts_of
from glassformer.evaluation.probes.known import Known
from glassformer.evaluation.probes.own_pairs import read_pairs
from glassformer.evaluation.probes.pairs import ABOUT, corpus_pairs, probe_pairs
from glassformer.evaluation.probes.reading import PSEUDO, Readable, longest, readable
from glassformer.evaluation.probes.result import ProbeResult
from glassformer.evaluation.probes.sequences import probe_induction, probe_recall
from glassformer.evaluation.probes.surprisal import LISTED, SurprisalResult, surprisal
from glassformer.runs import Folder, Which, open_run
from glassformer.text_model import MaskFiller, load_text_model
from glassformer.training.setup import encoded_text
from glassformer.wording import counted

TAUGHT_BY = {
    "agreement": "agreement",
    "coreference": "coreference",
    "induction": "repeats",
    "recall": "recall",
    "brackets": "brackets",
}
"""The generated corpus that teaches what a probe asks."""
PROBES = (*TAUGHT_BY, "surprisal")
SIZE = 1280
"""Minimal pairs: for four cells of four lengths 80 each; an interval of at most 2.7 points either way."""
ROWS = 64
"""Rows of the other probes for 1,280 pairs."""
MOST_HOLES = 20_000
"""Tokens of the surprisal of a masked model, each a pass of its own."""


@dataclass(frozen=True)
class Request:
    """What to probe, and how.

    Attributes:
        folder: of the run.
        probes: their names; none: all, or only what `pairs` and `text` ask for.
        pairs: a file of minimal pairs of one's own.
        text: whose surprisal is wanted; None: that of the run's own validation part.
        column: of `text`, where it is a table with several.
        size: minimal pairs; the rows of other probes follow.
        seed: of what is drawn.
        which: the checkpoint.
        device: where to compute.
        note: is told what a person should know.
    """

    folder: Folder
    probes: Sequence[str] = ()
    pairs: Path | None = None
    text: Path | None = None
    column: str | None = None
    size: int = SIZE
    seed: int = 1
    which: Which = "best"
    device: str = "auto"
    note: Callable[[str], None] = lambda text: None


@dataclass(frozen=True)
class ProbeReport:
    """All that was found.

    Attributes:
        run: its folder.
        results: one for each probe.
        notes: on all of them.
    """

    run: str
    results: Sequence[ProbeResult | SurprisalResult]
    notes: Sequence[str]

    def facts(self) -> dict[str, Any]:
        """For `--json`."""
        return {
            "run": self.run,
            "notes": list(self.notes),
            "probes": {result.name: result.facts() for result in self.results},
        }

    def table(self) -> str:
        """For people."""
        return "\n\n".join(filter(None, ["\n".join(self.notes), *(result.table() for result in self.results)]))


def probe_run(request: Request) -> ProbeReport:
    """Ask a run what it knows.

    Where all probes are asked for, one that the run cannot take is left out, with a note; one that is named is not.

    Raises:
        GlassError: there is no such run or probe, the run gives tokens no probability, a file is no text or no pairs,
            a text is longer than the context, or nothing is left.
    """
    for name in request.probes:
        if name not in PROBES:
            raise GlassError(f"there is no probe {name!r}", nearest(name, PROBES))
    pairs = None if request.pairs is None else read_pairs(request.pairs)
    model = readable(load_text_model(request.folder, request.which, request.device))
    own, notes = _own(request, model)
    known = None if own is None else Known(own.train.tokens, model.tokenizer.vocab_size, model.tokenizer.text_ids)
    results: list[ProbeResult | SurprisalResult] = []
    if request.pairs is not None and pairs is not None:
        about = f"{counted(len(pairs), 'minimal pairs')} of {request.pairs}"
        results.append(probe_pairs("pairs", about, pairs, model, known))
    for name in _names(request):
        try:
            results.append(_probe(name, request, model, own, known))
        except GlassError as error:
            if request.probes or request.text is not None:
                raise
            notes.append(f"{name} is left out: {error.problem}")
    if not results:
        raise GlassError(f"{request.folder} can take none of the probes: {notes[-1]}", "Name one to see what it needs.")
    return ProbeReport(str(request.folder), results, notes)


def _names(request: Request) -> list[str]:
    """The probes that are asked for, each once, in their order."""
    asked = {*request.probes, *(("surprisal",) if request.text is not None else ())}
    if not asked and request.pairs is None:
        asked = set(PROBES)
    return [name for name in PROBES if name in asked]


def _own(request: Request, model: Readable) -> tuple[Prepared | None, list[str]]:
    """The run's own text, if it is at hand, and what there is to say of all probes."""
    notes = [PSEUDO] if isinstance(model, MaskFiller) else []
    try:
        found = encoded_text(open_run(request.folder), model.config, request.note)
        assert isinstance(found, Prepared)
        return found, notes
    except GlassError as error:
        return None, [*notes, f"no rules of frequency, which need the training text: {error.problem}"]


def _probe(
    name: str, request: Request, model: Readable, own: Prepared | None, known: Known | None
) -> ProbeResult | SurprisalResult:
    if name == "surprisal":
        return _surprisal(request, model, own, known)
    rows = max(1, request.size * ROWS // SIZE)
    if name == "induction":
        result = probe_induction(model, known, rows, request.seed)
    elif name == "recall":
        result = probe_recall(model, known, rows, request.seed)
    else:
        pairs = corpus_pairs(name, request.size, request.seed)
        result = probe_pairs(name, f"{counted(len(pairs), 'minimal pairs')}: {ABOUT[name]}", pairs, model, known)
    source, corpus = model.config.data.source, TAUGHT_BY[name]
    if source == corpus:
        return result
    untaught = f"this run learnt from {Path(source).name}, not from the corpus {corpus}: expect chance or a rule"
    return replace(result, notes=[untaught, *result.notes])


def _surprisal(request: Request, model: Readable, own: Prepared | None, known: Known | None) -> SurprisalResult:
    """Of another text, or of the run's own validation part."""
    if request.text is None and own is None:
        raise GlassError("the run's own text is not at hand", "Name one: --text FILE.")
    with tempfile.TemporaryDirectory(prefix="glass-probe-", ignore_cleanup_errors=True) as temporary:
        if request.text is not None:
            store, notes = _encoded(request.text, request.column, model, Path(temporary))
            about = f"of {request.text}"
        else:
            assert own is not None
            store, notes, about = own.validation, [], "of the validation split"
        if len(store) < 2:
            what = request.text or "the validation split"
            raise GlassError(f"{what} has {counted(len(store), 'tokens')}", "Give a longer text: --text FILE.")
        for note in notes:
            request.note(note)
        masked = isinstance(model, MaskFiller)
        rows = list(
            validation_rows(
                store, model.config.data, longest(model), model.tokenizer.start_id, MOST_HOLES if masked else None
            )
        )
        counts = counts_of(store.tokens, model.tokenizer.vocab_size) if known is None else known.counts
        remarks = []
        if masked and sum(len(row) - 1 for row in rows) < len(store) - 1:
            remarks = [
                f"{counted(len(rows), 'rows')}, drawn evenly: a masked model reads a row once for each of its tokens"
            ]
        listed = 0 if request.text is None else LISTED
        return surprisal(model, rows, counts, "training" if known else "this text", about, remarks, listed)


def _encoded(text: Path, column: str | None, model: Readable, folder: Path) -> tuple[TokenStore, list[str]]:
    """A file, cut into rows as in training."""
    own = model.config.data
    if str(text) != "-" and not text.exists():
        raise GlassError(f"{text} does not exist", "Give a file with text.")
    data = DataConfig(source=str(text), column=column, windows=own.windows, document=own.document)
    return encode_whole(data, model.tokenizer, folder)
