"""Looking inside: the trace, and what is told from it."""
