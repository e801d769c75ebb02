"""Estimators for scikit-learn: train, score and use transformers as any other estimator (extra `sklearn`).

`TransformerClassifier` names labels of texts, `TransformerLanguageModel` learns to write, `TransformerTranslator`
writes a text for a text, and `TransformerArrayClassifier` names labels of rows of numbers.
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
