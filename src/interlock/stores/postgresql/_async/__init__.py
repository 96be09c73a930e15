"""PostgreSQL for tasks; that for threads is generated from it."""
