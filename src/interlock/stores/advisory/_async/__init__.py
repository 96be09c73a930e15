"""The queue on sessions and the sessions themselves, as tasks use them; `_sync` is generated from this."""
