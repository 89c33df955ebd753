"""The proxy: forwards requests of clients to their own model, adds memory, and stores the conversation."""
