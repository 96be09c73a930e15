"""Lock objects, grants, renewal of leases, and the end of a connection."""
