"""What `race.py` is made of: a private site, clients, races, and the report."""
