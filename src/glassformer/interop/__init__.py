"""Interop: formats of other programs, each an optional extra; importing this package imports none of them.

`huggingface` exports to and imports from Hugging Face, `onnx` and `gguf` export to ONNX Runtime and llama.cpp,
`sklearn` has scikit-learn estimators. Every export is compared with the run before it is kept.
"""
