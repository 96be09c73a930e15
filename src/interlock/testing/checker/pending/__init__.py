"""The proof of the pending protocol: the production generators, driven through every interleaving of a hostile world."""
