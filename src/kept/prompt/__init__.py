"""The system prompt and where its cache begins: pure functions of what they are given."""
