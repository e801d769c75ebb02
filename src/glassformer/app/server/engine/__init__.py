"""Continuous batching behind the API: for each run one queue, one running batch and one thread."""

from glassformer.app.server.engine.engine import Engine, Engines
from glassformer.app.server.engine.jobs import Job, Order, Piece, Scored

__all__ = ["Engine", "Engines", "Job", "Order", "Piece", "Scored"]
