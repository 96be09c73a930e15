"""The pure part: claims, acquire and the protocols; without clock, thread or socket."""
