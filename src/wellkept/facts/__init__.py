"""Facts: what a person states, and which of two statements about one thing holds."""
