"""The migrations of `state.db`, the file that sessions, outbox and usage share."""
