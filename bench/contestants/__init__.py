"""How to get a lock from each library; the scenarios' tables pick from here."""
