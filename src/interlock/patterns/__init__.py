"""Patterns on locks: run once, leader election, detached grants, one of several items."""
