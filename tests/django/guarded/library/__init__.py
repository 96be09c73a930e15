"""A library web site, for the tests of guarded models."""
