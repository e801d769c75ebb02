"""The receipt: what each part of the model gave to one logit, and how the token was then chosen."""

from glassformer.inspection.receipt.parts import Part, split_logit
from glassformer.inspection.receipt.receipt import Receipt, write_receipt

__all__ = ["Part", "Receipt", "split_logit", "write_receipt"]
