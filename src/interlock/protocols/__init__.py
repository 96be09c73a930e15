"""The protocols: generators that yield requests, and pure functions; no clock, thread, socket or client here."""
