"""End tokens of an imported tokenizer are token ids: in JSON, true is not the number 1."""

from __future__ import annotations

import pytest

from glassformer.interop.huggingface.tokenizer_import import _more_end_ids


@pytest.mark.parametrize(
    ("value", "expected"),
    [([3, 5, 7], [5, 7]), ([3, True, False, 5], [5]), ([3, 99, -1, "5", None], []), (5, []), (True, []), (None, [])],
)
def test_further_end_tokens_are_ids_of_the_vocabulary(value: object, expected: list[int]) -> None:
    assert _more_end_ids({"eos_token_id": value}, end_id=3, size=10) == expected
