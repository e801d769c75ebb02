"""Encode a text with many processes or machines: four stages of independent tasks, run by datatrove's executors.

`job.EncodingJob` describes the work, `steps` does the work, and `local` runs it on this machine. Only `local` needs
datatrove.
"""
