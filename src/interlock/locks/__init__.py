"""What users hold: connections, locks and grants, and the renewal of their leases."""
