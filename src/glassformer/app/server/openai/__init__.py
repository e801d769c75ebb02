"""The API that tools for OpenAI's models already speak: /v1/models, /v1/completions, /v1/chat/completions.

`routes(registry, engines)` gives its addresses. docs/api.md says what is supported.
"""

from glassformer.app.server.openai.routes import routes

__all__ = ["routes"]
