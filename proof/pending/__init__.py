"""The proof of the pending protocol: production code, driven through every interleaving of a hostile world."""
