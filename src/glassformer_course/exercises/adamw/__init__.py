"""Exercise: AdamW."""
