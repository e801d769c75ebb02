"""Check answers: run each answer in a separate process without PyTorch, and compare its results with the reference."""
