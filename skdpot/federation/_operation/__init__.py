"""Operation of a federation: a folder for each party, and what runs from it."""
