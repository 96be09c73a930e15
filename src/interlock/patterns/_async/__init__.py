"""Patterns on locks; written for tasks, generated for threads."""
