"""The exercises, a folder each."""
