"""Text: any file to records, tokens, a token store, and batches.

In the order in which a text passes: `reading` and `tables` open files in any encoding and format, `documents` and
`examples` make records, `cleaning` and `duplicates` drop some, `split` holds out a part, `tokenizers` turn text into
ids, `prepare` and `prepare_examples` write the `store`, and `batches` reads rows from it. `Batch` owns inputs, targets,
masks and the shift. `cluster` encodes a corpus on many machines.
"""
