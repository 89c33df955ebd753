"""Languages: a folder for each, with everything that is particular to it."""
