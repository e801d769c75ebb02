"""Backends: engines other than PyTorch that compute logits, for speed. Sampling and search are in `generation`.

`choosing` opens a backend by name. `onnx_graph` builds the ONNX graph of one decoding step from a model, and
`onnx_engine` runs it with onnxruntime on the CPU. `cache_scales` measures the scales of an 8-bit cache.
"""
