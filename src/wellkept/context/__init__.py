"""Context engines: messages in, fewer messages out; the originals stay in the store."""
