"""Search over past sessions: query, posting lists, candidates, ranking, results."""
