"""The server: the agent with memory for every client, and every operation over HTTP."""
