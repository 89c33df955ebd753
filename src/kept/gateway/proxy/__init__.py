"""The proxy: requests of clients on their way to their own model, with memory added and the conversation stored."""
