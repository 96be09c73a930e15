"""The store on a Redis server, as coroutines; threads have the generated twin."""
