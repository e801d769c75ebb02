"""Check answers: each runs in a separate process without PyTorch; its results are compared with the reference."""
