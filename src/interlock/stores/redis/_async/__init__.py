"""The store on a Redis server for tasks; that for threads is generated."""
