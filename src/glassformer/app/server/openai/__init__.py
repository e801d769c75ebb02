"""OpenAI-compatible API: /v1/models, /v1/completions, /v1/chat/completions.

`routes(registry, engines)` returns its routes. docs/serve.md describes the API and its unsupported parameters.
"""

from glassformer.app.server.openai.routes import routes

__all__ = ["routes"]
