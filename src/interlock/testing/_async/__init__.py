"""What tests of both APIs use; `_sync` is generated from this."""
