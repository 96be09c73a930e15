"""A Django app with one book, once guarded and once not."""
