"""The stores, each in a room of its own."""
