"""Where the home is, and what its settings say."""
