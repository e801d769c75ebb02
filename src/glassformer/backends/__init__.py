"""Backends: other engines that compute logits, for speed. The token loop, sampling and search are in `generation`.

`choosing` opens a backend by name. `onnx_graph` builds the ONNX graph of one decoding step from a model, and
`onnx_engine` runs it with onnxruntime on the CPU.
"""
