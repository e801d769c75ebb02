"""Text: any file to records, tokens, a token store, and batches.

`records` says what a record of each task is. In the order in which a text passes: `reading` and `tables` open files in
any encoding and format, `source` makes records of them (`documents` cuts running text, `cleaning` tidies it), `survey`
counts them and leaves some out (`duplicates`), `split` holds out a part, `tokenizers` turn text into ids, `encode`
writes a `record_store`, which has a token `store` for each role, and `batches` reads rows from it. `prepare` does all
of it, once for the same data and settings. `Batch` owns inputs, targets and masks. `encode_jobs` encodes a corpus on
many machines.
"""
