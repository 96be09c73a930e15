"""The queue of etcd for tasks; that for threads is generated."""
