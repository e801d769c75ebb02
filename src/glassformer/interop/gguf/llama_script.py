"""Run a GGUF file in llama.cpp: a script for a separate process, which does not import glassformer.

llama.cpp aborts its process if an assertion fails, and prints to standard output, so it must be isolated.

Standard input: JSON with `path`, `context` (tokens) and `requests`, each a body for `/completion` of llama-server.

Standard output: a JSON list with the response to each request. The key-value cache is in float32.
"""

from __future__ import annotations

import json
import os
import sys
import urllib.request
from typing import Any


def main() -> None:
    """Answer the requests on standard input."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # keep llama.cpp's own output out of the answers
    arguments = json.loads(sys.stdin.buffer.read())
    server = _server(arguments["path"], arguments["context"])
    json.dump([_answer(server.listening_address, body) for body in arguments["requests"]], answers)
    answers.flush()


def _server(path: str, context: int) -> Any:
    import xllamacpp

    settings = xllamacpp.CommonParams()
    settings.model.path = path
    settings.n_ctx = context
    settings.n_parallel = 1
    settings.n_gpu_layers = 0
    settings.cpuparams.n_threads = 1
    settings.cpuparams_batch.n_threads = 1
    settings.cache_type_k = xllamacpp.ggml_type.GGML_TYPE_F32
    settings.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32
    settings.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED  # it rounds to float16
    settings.warmup = False
    return xllamacpp.Server(settings)


def _answer(address: str, body: dict[str, Any]) -> Any:
    request = urllib.request.Request(
        f"{address}/completion", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(request) as answer:
        return json.load(answer)


if __name__ == "__main__":
    main()
