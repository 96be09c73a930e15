"""Tools for tests: locks in memory with faults, fixtures for pytest, and the contract that every store must keep."""
