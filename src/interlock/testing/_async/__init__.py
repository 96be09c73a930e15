"""What tests of both colours use; `_sync` is generated from this."""
