"""The open app: settings, components and lifetimes of one home."""

from kept.app.caller import Caller, Scope
from kept.app.root import App, open_app

__all__ = ["App", "Caller", "Scope", "open_app"]
