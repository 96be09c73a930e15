"""How Redis and Valkey are talked to: clients, connections, clusters, Sentinel, scripts and errors."""
