"""The proof of the pending protocol: production code in every interleaving, with all faults."""
