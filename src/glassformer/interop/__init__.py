"""Interoperability with other libraries, which are optional extras; importing this package does not import them.

`huggingface` exports runs to Hugging Face folders and imports such folders, `onnx` exports to ONNX Runtime, `gguf`
exports to llama.cpp, and `sklearn` provides scikit-learn estimators. Every export is compared with the run; if
they do not match, the export is deleted.
"""
