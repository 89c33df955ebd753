"""The agent: the turn loop (recall, call the model, run tools, store) and everything a conversation needs."""
