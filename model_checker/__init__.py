"""A model checker for protocols written as coroutines: every interleaving, crash and lost reply."""
