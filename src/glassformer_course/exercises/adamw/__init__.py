"""Exercise: a step of AdamW, with decoupled weight decay."""
