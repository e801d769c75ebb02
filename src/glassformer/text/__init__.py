"""Read text from files in many formats and turn it into records, tokens, token stores and batches.

`records` defines the records of each task. In processing order: `reading` and `tables` open files in several encodings
and formats, `source` makes records from them (`documents` cuts running text, `cleaning` cleans it), `survey` counts
records and leaves some out (`duplicates` finds duplicate documents), `split` holds out a validation split, `tokenizers`
turns text into ids, `encode` writes a `record_store` with a token `store` for each role, and `batches` reads rows from
it and makes a `Batch` of inputs, targets and masks. `prepare` runs all steps and caches the result. `encode_jobs`
encodes a corpus with many processes or machines.
"""
