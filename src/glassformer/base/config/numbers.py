"""Types of numbers in settings, with their limits."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

Probability = Annotated[float, Field(ge=0, lt=1)]
Count = Annotated[int, Field(ge=1, le=10**12)]
Seed = Annotated[int, Field(ge=0, lt=2**64)]
Rate = Annotated[float, Field(gt=0, le=1e6)]
