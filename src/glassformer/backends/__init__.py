"""Other engines that compute logits, for speed. The token loop, sampling and search stay those of `generation`.

`choosing` opens one by its name. `onnx_graph` builds the graph of one step of a decoder from an open model, and
`onnx_engine` runs it with onnxruntime on the processor, as a reader of rows.
"""
