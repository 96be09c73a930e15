"""What several test files share: the table of stores, processes, servers' settings."""
