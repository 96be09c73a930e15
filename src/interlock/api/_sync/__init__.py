# Generated from _async/__init__.py by tools/unasync.py; change that one.
"""What the stores on servers share, as coroutines; threads have the generated twin."""
