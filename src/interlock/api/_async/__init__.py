"""The public API of tasks; that of threads is generated."""
