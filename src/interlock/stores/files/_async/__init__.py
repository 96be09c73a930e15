"""The queues of stores that decide in the client, as tasks use them; `_sync` is generated from this."""
