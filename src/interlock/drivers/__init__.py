"""The common part of stores about client libraries and their URLs."""
