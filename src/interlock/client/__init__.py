"""What `connect` and `aconnect` return: lock objects, grants, renewal of leases, and the end of a connection."""
