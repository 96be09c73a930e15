"""The import paths of stores that were written for version 0.1; the modules are in `interlock.core`."""
