"""Export runs to Hugging Face model folders and import such folders, exactly or not at all; errors state the reason.

One description per class (`decoders`, `encoders`, `pairs`) maps the fields of `config.json` to our settings, and the
tensors of the class to ours. Import and export use the same description, so they cannot disagree. Import needs only
safetensors; export needs `transformers`, to reload the folder and compare it with the run.
"""
