"""The routers of all screens, in the order in which they are asked."""

from kept.gateway.web import frame, home, memory

SCREENS = (frame.router, home.router, memory.router)
