"""Token ids in, token ids out: sample the next token, and grow rows of tokens. Text is not known here."""
