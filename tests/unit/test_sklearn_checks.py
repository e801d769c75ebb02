"""scikit-learn's own checks: all of them for the numeric estimator, and those without data for text estimators."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("sklearn")

from sklearn.utils import estimator_checks, get_tags
from sklearn.utils.estimator_checks import parametrize_with_checks

from glassformer.interop.sklearn import (
    TransformerArrayClassifier,
    TransformerClassifier,
    TransformerLanguageModel,
    TransformerTranslator,
)
from tests.journey.commands import begin, ended

pytestmark = pytest.mark.thorough

SMALL: dict[str, Any] = {
    "layers": 1,
    "width": 16,
    "heads": 2,
    "steps": 25,
    "learning_rate": 1e-2,
    "dropout": 0.0,
    "device": "cpu",
    "threads": 1,
}
TEXT_ESTIMATORS = (TransformerClassifier, TransformerLanguageModel, TransformerTranslator)
WITHOUT_DATA = (
    "check_do_not_raise_errors_in_init_or_set_params",
    "check_estimator_cloneable",
    "check_estimator_repr",
    "check_estimator_tags_renamed",
    "check_estimators_unfitted",
    "check_get_params_invariance",
    "check_mixin_order",
    "check_n_features_in_after_fitting",
    "check_no_attributes_set_in_init",
    "check_parameters_default_constructible",
    "check_set_params",
    "check_valid_tag_types",
)
WITH_DISPATCH = """
import os
os.environ.update(SCIPY_ARRAY_API="1", TMPDIR={temporary!r})
from functools import partial
from sklearn.utils.estimator_checks import check_array_api_input
from glassformer.interop.sklearn import TransformerArrayClassifier
check_array_api_input("x", TransformerArrayClassifier(**{small!r}), "numpy", expect_only_array_outputs=False)
print("passed")
"""


@pytest.fixture(autouse=True, scope="module")
def _memory_for_folders(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep the many small files of short fits in memory if the operating system supports it."""
    tmp_path_factory.getbasetemp()  # stays on the disk
    before = tempfile.tempdir
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=memory) as tempfile.tempdir:
        yield
    tempfile.tempdir = before


@parametrize_with_checks([TransformerArrayClassifier(**SMALL), *(kind(**SMALL) for kind in TEXT_ESTIMATORS)])
def test_scikit_learns_checks(estimator: Any, check: Any) -> None:
    """No check is expected to fail. scikit-learn skips one check unless SciPy dispatches arrays; see below."""
    check(estimator)


@pytest.mark.parametrize("kind", TEXT_ESTIMATORS)
@pytest.mark.parametrize("check", WITHOUT_DATA)
def test_checks_without_data(kind: Any, check: str) -> None:
    """For a text estimator, the suite above has a single check; the others are called one by one."""
    getattr(estimator_checks, check)(kind.__name__, kind(**SMALL))


def test_the_check_that_needs_array_dispatch() -> None:
    """SciPy reads its environment when it is imported, so this check needs a separate process."""
    code = WITH_DISPATCH.format(temporary=tempfile.gettempdir(), small=SMALL)
    done = ended(begin("-c", code, folder=Path(__file__).parents[2]))
    assert done.stdout.strip() == "passed", done.stderr[-2000:]


def test_scikit_learn_tags_are_correct() -> None:
    for kind in TEXT_ESTIMATORS:
        tags = get_tags(kind())
        assert (tags.input_tags.string, tags.input_tags.one_d_array, tags.input_tags.two_d_array) == (True, True, False)
    tags = get_tags(TransformerArrayClassifier())
    assert (tags.input_tags.two_d_array, tags.input_tags.string, tags.non_deterministic) == (True, False, False)
    kinds = [get_tags(kind()).estimator_type for kind in (*TEXT_ESTIMATORS, TransformerArrayClassifier)]
    assert kinds == ["classifier", "density_estimator", None, "classifier"]
    assert [get_tags(kind()).target_tags.required for kind in TEXT_ESTIMATORS] == [True, False, True]
