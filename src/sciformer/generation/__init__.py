"""Generation of sequences token by token: sampling, beam search, translation."""
