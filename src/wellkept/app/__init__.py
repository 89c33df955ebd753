"""The open app: settings, components and lifetimes of one home."""

from wellkept.app.caller import Caller, Scope
from wellkept.app.root import App, open_app

__all__ = ["App", "Caller", "Scope", "open_app"]
