"""Continuous batching for the API: one queue and one thread for each run, and one token loop for each checkpoint."""

from glassformer.app.server.engine.engine import Engine, Engines
from glassformer.app.server.engine.jobs import GenerationRequest, ScoredToken, TextJob, TextPiece

__all__ = ["Engine", "Engines", "GenerationRequest", "ScoredToken", "TextJob", "TextPiece"]
