"""Values, events, errors and ports: the vocabulary of every other package."""
