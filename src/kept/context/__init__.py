"""The context: messages in, fewer messages out, and nothing lost."""
