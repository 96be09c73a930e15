"""`atransact`, and what a backend offers it; the source of `_sync`."""
