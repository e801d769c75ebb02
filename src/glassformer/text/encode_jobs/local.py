"""Run a job on this machine with datatrove's local executor."""

from __future__ import annotations

import multiprocessing
import os
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, nullcontext
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkServerContext, SpawnContext
from pathlib import Path

from glassformer.base.config import DataConfig
from glassformer.base.errors import GlassError
from glassformer.base.files import no_empty_folders, refuse_taken
from glassformer.base.packages import require_packages
from glassformer.base.wording import counted
from glassformer.text.encode_jobs.job import EncodingJob, EncodingStage, plan_job
from glassformer.text.encode_jobs.steps import stages
from glassformer.text.prepare import Prepared, TokenizerOrigin, open_prepared
from glassformer.text.records import RecordKind
from glassformer.text.source import open_source


def encode_with_datatrove(
    kind: RecordKind,
    data: DataConfig,
    tokenizer_origin: TokenizerOrigin,
    out: Path,
    progress: Callable[[str], None],
    workers: int,
    parts: int | None = None,
    alone: Callable[[Path], AbstractContextManager[None]] = lambda folder: nullcontext(),
) -> Prepared:
    """Encode a text like `encoded.encode_here`, but with several processes; the files are the same, byte for byte.

    The next call with the same text, settings, `parts` and `out` resumes a killed call: completed tasks are not
    repeated.

    Args:
        kind: the kind of records, which must be running text.
        data: the source and how to read it.
        tokenizer_origin: origin of the tokenizer.
        out: the folder to make.
        progress: function that receives a message when a stage begins, or when a killed call is resumed.
        workers: number of processes.
        parts: approximate number of parts; None: chosen by size.
        alone: function that receives the work folder and returns a context manager that keeps other calls out of it.

    Raises:
        GlassError: a package is missing, a process was killed, or as in `encode_here`.
    """
    require_packages("--engine datatrove", "datatrove", "orjson", extra="cluster")
    with ExitStack() as stack:
        stack.enter_context(no_empty_folders(out.parent))
        source = stack.enter_context(open_source(kind, data, out.parent))
        job = plan_job(source, tokenizer_origin, out, parts)
        if not job.done():
            refuse_taken(out)
            job.work_folder.mkdir(parents=True, exist_ok=True)
            stack.enter_context(alone(job.work_folder))
            if job.begin():
                progress(f"resuming {job.work_folder}")
            for stage in stages(job):
                progress(f"{stage.name}: {counted(stage.tasks, 'tasks')}")
                run_stage(job, stage, workers)
    shutil.rmtree(job.work_folder)
    return open_prepared(kind, out)


def run_stage(job: EncodingJob, stage: EncodingStage, workers: int) -> None:
    """Run the incomplete tasks of a stage, each in a separate process, at most `workers` at once.

    Raises:
        GlassError: a process was killed before its task was complete.
        Exception: the error of a task that failed. Completed tasks are not repeated by the next call.
    """
    with ThreadPoolExecutor(min(workers, stage.tasks)) as threads:
        tasks = [threads.submit(_run_in_process, job, stage, rank) for rank in range(stage.tasks)]
        try:
            for task in tasks:
                task.result()
        finally:
            threads.shutdown(cancel_futures=True)


def _run_in_process(job: EncodingJob, stage: EncodingStage, rank: int) -> None:
    """Run one task in a child process and wait for it.

    A pool would wait forever for a killed child, and would outlive this process if this process is killed.
    """
    if (job.logs(stage) / "completions" / f"{rank:05d}").exists():
        return
    context = _context()
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_run_task, args=(stage, str(job.logs(stage)), rank, sender))
    process.start()
    sender.close()
    killed_error = GlassError(
        f"stage {stage.name}: the process of task {rank} (of {stage.tasks}, from 0) ended before its task was complete",
        "Run the same command again to resume. If memory ran out, lower --workers, or raise --parts (which starts "
        "again from the beginning).",
    )
    wait([receiver, process.sentinel])
    try:
        error = receiver.recv() if receiver.poll() else killed_error
    except EOFError:
        error = killed_error
    process.join()
    if error is not None:
        raise error


def _context() -> SpawnContext | ForkServerContext:
    """Return a multiprocessing context whose processes inherit no locks or threads.

    Except on Windows, the processes share imported modules.
    """
    if os.name == "nt":
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["datatrove.executor", "glassformer.text.encode_jobs.steps"])
    return context


def _run_task(stage: EncodingStage, logs: str, rank: int, sender: Connection) -> None:
    """Run one task with datatrove's executor in a child process, and send its error, or None on success."""
    from datatrove.executor import LocalPipelineExecutor
    from loguru import logger

    logger.disable("datatrove")  # it logs every step to standard error, but errors are raised
    try:
        # All executors run a task like this; `run` would leave a server process behind if this process is killed.
        LocalPipelineExecutor([stage.step], tasks=stage.tasks, logging_dir=logs)._run_for_rank(rank, local_rank=1)
    except KeyboardInterrupt:
        pass  # Ctrl-C reaches all processes, and the parent process handles it
    except Exception as error:
        sender.send(error)
    else:
        sender.send(None)
