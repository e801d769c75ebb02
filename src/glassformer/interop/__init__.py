"""Interoperability with other libraries, which are optional extras; importing this package does not import them.

`huggingface` exports to and imports from Hugging Face, `onnx` exports to ONNX Runtime, `gguf` exports to llama.cpp, and
`sklearn` has scikit-learn estimators. Every export is compared with the run before it is kept.
"""
