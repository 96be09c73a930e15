"""The queue of etcd; written for tasks, generated for threads."""
