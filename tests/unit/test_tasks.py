"""Every table that has a line for each task has one for all tasks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import get_args

import pytest

from glassformer.base.config import TASK_FACTS, Task
from glassformer.tasks.make import TASKS
from glassformer.text.records import RECORD_KINDS

TABLES: dict[str, Mapping[str, object]] = {
    "base/config/tasks.py: TASK_FACTS": TASK_FACTS,
    "text/records.py: RECORD_KINDS": RECORD_KINDS,
    "tasks/make.py: TASKS": TASKS,
}


@pytest.mark.parametrize("table", TABLES)
def test_a_table_has_a_line_for_every_task(table: str) -> None:
    assert set(TABLES[table]) == set(get_args(Task))
