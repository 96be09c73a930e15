"""Protocols of more than one step, as tasks do them; `_sync` is generated from this."""
