"""The client of tasks; that of threads, `_sync`, is generated from this."""
