"""The pure part: what a claim is, how it is acquired, and the protocols; no clock, thread, socket or client here."""
