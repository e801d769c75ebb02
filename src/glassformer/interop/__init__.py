"""Interoperability with other libraries. Each needs an optional extra; importing this package imports none of them.

`huggingface` exports to and imports from Hugging Face, `onnx` exports to ONNX Runtime, `gguf` exports to llama.cpp, and
`sklearn` has scikit-learn estimators. Every export is compared with the run before it is kept.
"""
