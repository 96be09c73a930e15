"""The store on a Redis server; written for tasks, generated for threads."""
