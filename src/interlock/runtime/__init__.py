"""What performs a protocol, in threads and in asyncio tasks, and what is known of this process."""
