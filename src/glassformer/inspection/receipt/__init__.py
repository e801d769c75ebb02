"""The receipt: what each part of the model gave to one logit, and how the token was then chosen."""

from glassformer.inspection.receipt.parts import LogitPart, split_logit
from glassformer.inspection.receipt.receipt import Receipt, write_receipt

__all__ = ["LogitPart", "Receipt", "split_logit", "write_receipt"]
