"""Export runs to Hugging Face model folders and import such folders; refuse models that cannot be converted exactly.

One description per class (`decoders`, `encoders`, `encoder_decoders`) maps the fields of `config.json` to our settings,
and the tensors of the class to ours. Import and export use the same description, so they cannot disagree. Import needs
no optional package; export needs `transformers`, to reload the folder and compare it with the run.
"""
