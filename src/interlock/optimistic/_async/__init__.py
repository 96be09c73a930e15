"""`atransact`, and the interface of a backend; `transact` is generated."""
