"""Operation of a federation: a folder for each party, and the processes that run from it."""
