"""The routers of all screens, in the order in which they are matched."""

from wellkept.gateway.web import (
    agents,
    chat,
    forget,
    frame,
    home,
    memory,
    preview,
    providers,
    receipts,
    search,
    sessions,
    settings,
    skills,
    usage,
)

SCREENS = tuple(
    module.router
    for module in (
        frame, home, memory, search, sessions, chat, preview, receipts, agents, skills, providers, usage, forget,
        settings,
    )
)  # fmt: skip
