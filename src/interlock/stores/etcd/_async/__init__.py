"""The source of both colours."""
