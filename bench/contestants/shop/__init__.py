"""A Django app with one model, plain and guarded."""
