"""Token ids in, token ids out: how the next token is drawn, and how rows of tokens grow. Text is not known here."""
