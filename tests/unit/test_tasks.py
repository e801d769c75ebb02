"""Every table that has a line for each task has one for all tasks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import get_args

import pytest

from glassformer.api import METHODS
from glassformer.base.config import FAMILIES, Task
from glassformer.base.wording import USES
from glassformer.launch.request import USUAL
from glassformer.tasks.make import TASKS
from glassformer.tasks.task_errors import VERBS
from glassformer.text.records import RECORD_KINDS
from glassformer.training.sizing import RULES

TABLES: dict[str, Mapping[str, object]] = {
    "base/config/tasks.py: FAMILIES": FAMILIES,
    "text/records.py: RECORD_KINDS": RECORD_KINDS,
    "tasks/make.py: TASKS": TASKS,
    "tasks/task_errors.py: VERBS": VERBS,
    "base/wording.py: USES": USES,
    "launch/request.py: USUAL": USUAL,
    "training/sizing.py: RULES": RULES,
    "api.py: METHODS": METHODS,
}


@pytest.mark.parametrize("table", TABLES)
def test_a_table_has_a_line_for_every_task(table: str) -> None:
    assert set(TABLES[table]) == set(get_args(Task))
