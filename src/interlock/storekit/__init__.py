"""Frameworks for writing stores."""
