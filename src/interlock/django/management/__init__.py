"""For Django, which looks for commands here."""
