"""Functions that run one task of a stage: each reads the source or files of earlier stages, and writes files.

The tasks use the same functions as encoding in one process (`prepare.write_prepared`). A plan records the position of
its part in the whole text, so the joined parts equal the output of one process, token for token.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import IO

import numpy as np
import numpy.typing as npt

from glassformer.base.files import MANIFEST, new_output, sha256, write_manifest, write_text
from glassformer.text.data_notes import document_split_notes, survey_notes, token_notes
from glassformer.text.duplicates import DuplicateFinder
from glassformer.text.encode import RecordWriter
from glassformer.text.encode_jobs.job import EncodingJob, EncodingStage, EncodingStep
from glassformer.text.encode_jobs.plans import PartPlan, read_plan, write_plan
from glassformer.text.left_out import Tally
from glassformer.text.prepare import TrainingTexts, save_tokenizers, write_text_facts
from glassformer.text.records import RecordPiece
from glassformer.text.split import SPLITS, SplitName, SplitPiece, split_documents
from glassformer.text.store import PartWriter, StoreWriter
from glassformer.text.survey import Facts, Survey, facts_of, filter_pieces, why_left_out
from glassformer.text.tokenizers import Tokenizer

FACTS = ("characters", "words", "mark", "whole")
Columns = dict[str, npt.NDArray[np.uint64]]


def stages(job: EncodingJob) -> tuple[EncodingStage, ...]:
    """Return all stages of a job in execution order."""

    def stage(name: str, tasks: int, function: Callable[[EncodingJob, int], None]) -> EncodingStage:
        return EncodingStage(name, tasks, EncodingStep(name, job, function))

    return (
        stage("read", len(job.portions), read),
        stage("decide", 1, decide),
        stage("encode", job.parts, encode),
        stage("merge", 1, merge),
    )


def read(job: EncodingJob, rank: int) -> None:
    """Write the documents of the task's files to parts (cleaned if `data.clean` is set), and their sizes and hashes."""
    portion = job.portions[rank]
    source = replace(job.source, files=job.source.files[portion.first_file : portion.end_file])
    tally = Tally()
    facts_by_part: list[list[Facts]] = [[] for _ in range(portion.parts)]
    single_piece_flags: list[list[bool]] = [[] for _ in range(portion.parts)]
    with ExitStack() as stack:
        numbers = range(portion.first_part, portion.first_part + portion.parts)
        files = [stack.enter_context(job.part_file(number).open("wb")) for number in numbers]
        current_part: list[int] = []  # the index of the current document's part
        pieces = _write_pieces(source.records(tally), files, current_part, job.part_bytes)
        near_duplicates = source.data.duplicates == "near"
        for document_facts, _, single_piece in facts_of(pieces, source.data, bands=near_duplicates):
            facts_by_part[current_part[-1]].append(document_facts)
            single_piece_flags[current_part[-1]].append(single_piece)
    for number, documents, flags in zip(numbers, facts_by_part, single_piece_flags, strict=True):
        columns: Columns = {name: np.array([getattr(each, name) for each in documents], "<u8") for name in FACTS[:3]}
        bands = np.frombuffer(b"".join(each.bands for each in documents), "<u8")
        columns |= {"whole": np.array(flags, "<u8"), "bands": bands}
        np.savez(job.facts_file(number), allow_pickle=False, **columns)
    write_text(_tally_file(job, rank), json.dumps(tally.as_json()))


def _write_pieces(
    documents: Iterator[RecordPiece], files: Sequence[IO[bytes]], current_part: list[int], part_bytes: int
) -> Iterator[RecordPiece]:
    """Write the pieces to the files, one file after the other, and yield them. No document spans two files."""
    number = size = 0
    for piece in documents:
        if piece.first and size >= part_bytes and number + 1 < len(files):
            number += 1
            size = 0
        current_part[:] = [number]
        line = json.dumps([*piece.texts, piece.last], ensure_ascii=False) + "\n"
        size += files[number].write(line.encode("utf-8", "surrogatepass"))
        yield piece


def decide(job: EncodingJob, rank: int = 0) -> None:
    """Decide which documents to keep and which of them to hold out, and train or load the tokenizer.

    These decisions need all documents, so they are one task.
    """
    columns = [_load_columns(job, number) for number in range(job.parts)]
    survey, keep_masks = _survey(job, columns)
    survey.raise_if_empty(job.source.name)
    split = split_documents(survey, job.source.data)
    start = 0
    first = 0
    remaining_limit = split.limit
    for number, (part_columns, keep_mask) in enumerate(zip(columns, keep_masks, strict=True)):
        documents = len(keep_mask)
        large = {index - first: facts for index, facts in survey.large.items() if first <= index < first + documents}
        repeated = survey.repeated[first : first + documents].ljust(documents, b"\0")
        part_survey = Survey(survey.kind, large=large, repeated=repeated)
        write_plan(job.plan_file(number), PartPlan(start, replace(split, limit=remaining_limit), part_survey))
        held_out = keep_mask & ((part_columns["mark"] >> np.uint64(48)).astype(np.int64) <= split.bucket)
        start += int(part_columns["characters"][keep_mask].sum())
        first += documents
        remaining_limit = max(0, remaining_limit - int(part_columns["characters"][held_out].sum()))
    tokenizer = job.tokenizer_origin.tokenizer(job.source.kind, TrainingTexts(lambda: _all_split_pieces(job), [0]))
    tokenizer.save(job.tokenizer_file)
    write_plan(_whole_plan_file(job), PartPlan(0, split, survey))


def _survey(job: EncodingJob, columns: list[Columns]) -> tuple[Survey, list[npt.NDArray[np.bool_]]]:
    """Return the survey of all documents, and for each part a mask of the documents that are kept."""
    data = job.source.data
    survey = Survey(job.source.kind)
    for rank in range(len(job.portions)):
        survey.tally.add(json.loads(_tally_file(job, rank).read_text(encoding="utf-8")))
    if data.duplicates != "keep":
        finder = DuplicateFinder()
        for index, (facts, _) in enumerate(_documents(columns)):
            if not why_left_out(facts.words, facts.characters, facts.other_fields, survey.kind, data):
                finder.add(index, facts.mark, facts.bands)
        survey.repeated = finder.duplicate_flags()
    keep_mask = np.fromiter(
        (
            survey.add(index, facts, single_piece, data)
            for index, (facts, single_piece) in enumerate(_documents(columns))
        ),
        bool,
    )
    return survey, np.split(keep_mask, np.cumsum([len(each["mark"]) for each in columns])[:-1])


def _documents(columns: list[Columns]) -> Iterator[tuple[Facts, bool]]:
    """Yield the sizes and hashes of each document, and whether it was read in one piece."""
    for each in columns:
        bands = each["bands"].tobytes()
        width = len(bands) // max(1, len(each["mark"]))
        rows = zip(*(each[name].tolist() for name in FACTS), strict=True)
        for index, (characters, words, mark, single_piece) in enumerate(rows):
            yield Facts(characters, words, mark, bands[width * index : width * (index + 1)]), bool(single_piece)


def _all_split_pieces(job: EncodingJob) -> Iterator[SplitPiece]:
    for number in range(job.parts):
        yield from _part_split_pieces(job, number)


def _part_split_pieces(job: EncodingJob, number: int) -> Iterator[SplitPiece]:
    """Return the kept pieces of a part's text, each with its split."""
    plan = read_plan(job.source.kind, job.plan_file(number))
    random = plan.split.bucket >= 0
    pieces = filter_pieces(_pieces(job.part_file(number)), job.source.data, plan.survey, marks=random, start=plan.start)
    return plan.split.split_pieces(pieces)


def _pieces(path: Path) -> Iterator[RecordPiece]:
    """Yield the pieces of a part's documents as they were read; the documents are numbered from 0."""
    number = 0
    first = True
    with path.open("rb") as file:
        for line in file:
            text, last = json.loads(line.decode("utf-8", "surrogatepass"))
            yield RecordPiece(number, (text,), first=first, last=last)
            number += last
            first = last


def encode(job: EncodingJob, rank: int) -> None:
    """Encode the documents of one part."""
    tokenizer = Tokenizer.load(job.tokenizer_file)
    kind = job.source.kind
    tokenizers = {"text": tokenizer}
    writers = {
        split: RecordWriter(kind, job.tokens_file(rank, split), tokenizers, store=PartWriter) for split in SPLITS
    }
    try:
        for split, texts, labels, last, _ in _part_split_pieces(job, rank):
            writers[split].add(texts, labels, last)
        for writer in writers.values():
            writer.close()
    finally:
        for writer in writers.values():
            writer.abandon()
    write_text(_cuts_file(job, rank), str(sum(writer.forced_cuts for writer in writers.values())))


def merge(job: EncodingJob, rank: int = 0) -> None:
    """Join all parts, in order, into a training and a validation store; `out` appears when it is complete."""
    tokenizer = Tokenizer.load(job.tokenizer_file)
    kind = job.source.kind
    plan = read_plan(kind, _whole_plan_file(job))
    cuts = sum(int(_cuts_file(job, number).read_text(encoding="utf-8")) for number in range(job.parts))

    with new_output(job.out) as folder:
        folder.mkdir()
        save_tokenizers(folder, kind, {"text": tokenizer})
        writers: dict[SplitName, StoreWriter] = {split: StoreWriter(folder / split, tokenizer) for split in SPLITS}
        for split, writer in writers.items():
            try:
                for number in range(job.parts):
                    writer.append(job.tokens_file(number, split))
                writer.close()
            finally:
                writer.abandon()
        notes = [*job.source.notes, *survey_notes(plan.survey)]
        stores = {split: {"text": writer} for split, writer in writers.items()}
        notes += document_split_notes(plan.survey, plan.split, job.source.data, stores)
        notes += token_notes(kind, {"text": tokenizer}, stores, cuts)
        write_text_facts(folder, job.source, job.tokenizer_origin, tokenizer, notes)
        write_manifest(folder)
        write_text(job.merged_file, sha256(folder / MANIFEST))


def _load_columns(job: EncodingJob, number: int) -> Columns:
    with np.load(job.facts_file(number), allow_pickle=False) as stored:
        return {name: stored[name] for name in (*FACTS, "bands")}


def _tally_file(job: EncodingJob, rank: int) -> Path:
    return job.work_folder / "parts" / f"tally-{rank:05d}.json"


def _cuts_file(job: EncodingJob, rank: int) -> Path:
    return job.work_folder / "tokens" / f"{rank:05d}.cuts"


def _whole_plan_file(job: EncodingJob) -> Path:
    return job.work_folder / "plans" / "whole"
