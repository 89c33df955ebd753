"""The system prompt and its cache markers: pure functions."""
