"""Scikit-learn estimators: train, score and use transformers like any other estimator (extra `sklearn`).

`TransformerClassifier` classifies texts, `TransformerLanguageModel` learns to continue text, `TransformerTranslator`
translates, and `TransformerArrayClassifier` classifies rows of numbers.
"""

from __future__ import annotations

try:
    import sklearn  # noqa: F401
except ImportError:
    raise ImportError(
        'these estimators need the package scikit-learn\npip install -c constraints.txt -e ".[sklearn]"'
    ) from None

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
