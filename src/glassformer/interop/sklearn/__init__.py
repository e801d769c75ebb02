"""Scikit-learn estimators: train, score and use transformers like any other estimator (extra `sklearn`).

`TransformerClassifier` classifies texts, `TransformerLanguageModel` learns to continue text, `TransformerTranslator`
translates, and `TransformerArrayClassifier` classifies rows of numbers.
"""

from __future__ import annotations

from glassformer.base.packages import install_command

try:
    import sklearn  # noqa: F401
except ImportError:
    raise ImportError(f"these estimators need the package scikit-learn\n{install_command('sklearn')}") from None

from glassformer.interop.sklearn.classifiers import TransformerArrayClassifier, TransformerClassifier
from glassformer.interop.sklearn.inputs import RefusedError
from glassformer.interop.sklearn.writers import TransformerLanguageModel, TransformerTranslator

__all__ = [
    "RefusedError",
    "TransformerArrayClassifier",
    "TransformerClassifier",
    "TransformerLanguageModel",
    "TransformerTranslator",
]
