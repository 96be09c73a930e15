"""The locks of each library; the tables of the scenarios use them."""
