"""The composition root: the only reader of settings, the owner of every lifetime."""

from kept.app.root import App, open_app

__all__ = ["App", "open_app"]
