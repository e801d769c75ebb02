"""The Tokens view shows the ids of the run's tokenizer."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from glassformer.tasks import AnyTextModel
from tests.browser.conftest import Visit
from tests.browser.reading import copied, values
from tests.browser.tiny_runs import TEXTS

pytestmark = pytest.mark.thorough


@pytest.mark.parametrize("run", ["book", "bangla"])
def test_the_ids_equal_the_tokenizers(run: str, page: Visit, model: Callable[[str], AnyTextModel]) -> None:
    shown = page("tokens", run)
    ids = model(run).tokenizer.encode(TEXTS[run])
    assert values(shown, "td") == ids
    assert [line.split(",")[2] for line in copied(shown).splitlines()[1:]] == [str(id) for id in ids]
