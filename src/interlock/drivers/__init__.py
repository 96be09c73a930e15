"""What stores share about client libraries and their URLs."""
