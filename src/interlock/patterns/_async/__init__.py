"""What the stores on servers share, as coroutines; threads have the generated twin."""
