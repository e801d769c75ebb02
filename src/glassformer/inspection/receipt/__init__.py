"""Receipt: direct logit attribution of one logit, and the steps that led to the choice of a token."""

from glassformer.inspection.receipt.parts import LogitPart, split_logit
from glassformer.inspection.receipt.receipt import Receipt, write_receipt

__all__ = ["LogitPart", "Receipt", "split_logit", "write_receipt"]
