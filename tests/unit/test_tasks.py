"""Every table with one entry per task has an entry for every task."""

from __future__ import annotations

from collections.abc import Mapping
from typing import get_args

import pytest

from glassformer.base.config import CONVERSATIONS, LABELLED, PAIRS, TASK_FACTS, Task
from glassformer.base.config.tasks import TEXTS
from glassformer.tasks.make import TASKS
from glassformer.text.records import RECORD_KINDS

TABLES: dict[str, Mapping[str, object]] = {
    "base/config/tasks.py: TASK_FACTS": TASK_FACTS,
    "text/records.py: RECORD_KINDS": RECORD_KINDS,
    "tasks/make.py: TASKS": TASKS,
}


@pytest.mark.parametrize("table", TABLES)
def test_every_table_has_every_task(table: str) -> None:
    assert set(TABLES[table]) == set(get_args(Task))


def test_the_facts_of_a_task_agree_with_its_records_and_its_family() -> None:
    for task in get_args(Task):
        facts = TASK_FACTS[task]
        kind = RECORD_KINDS[task]
        form = "text" if kind.running_text else "labelled" if kind.labels != "none" else "pairs"
        form = "conversations" if kind.loss_spans else form
        assert facts.records == form
        assert (facts.family == "encoder-decoder") == ("target" in kind.roles)
    assert sorted((*TEXTS, *PAIRS, *LABELLED, *CONVERSATIONS)) == sorted(TASK_FACTS)
