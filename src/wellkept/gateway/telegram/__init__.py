"""Telegram: the Bot API over plain HTTP, as a chat platform."""
