"""The records in a database of Django, as coroutines; threads have the generated twin."""
