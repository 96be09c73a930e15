"""The queue on sessions, and the requests on a session; written for tasks, generated for threads."""
