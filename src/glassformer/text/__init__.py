"""Text: from files of many formats to records, tokens, token stores and batches.

`records` defines the records of each task. In processing order: `reading` and `tables` open files in many encodings and
formats, `source` makes records from them (`documents` cuts running text, `cleaning` cleans it), `survey` counts records
and leaves some out (`duplicates`), `split` holds out a validation part, `tokenizers` turns text into ids, `encode`
writes a `record_store` with a token `store` for each role, and `batches` reads rows from it and makes a `Batch` of
inputs, targets and masks. `prepare` runs all steps, once for the same data and settings. `encode_jobs` encodes a corpus
on many machines.
"""
