"""The runtimes of threads and of asyncio tasks, and facts about this process."""
