"""The heirs of the Redis store: who is let in before the server knows."""
