"""Models to and from folders of Hugging Face: exact, or refused by name.

One description per class (`decoders`, `encoders`, `pairs`) says which field of `config.json` is which setting, and
which of its tensors are which of ours. It is read in both directions, so that import and export cannot disagree.
Reading needs nothing but safetensors; `transformers` is needed to load back and compare what was written.
"""
