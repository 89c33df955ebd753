"""Connected agents: what is written into their settings, the hooks that they call, and what is captured from them."""

from typing import TYPE_CHECKING

from wellkept.core.text import load_on_use

if TYPE_CHECKING:
    from wellkept.connect import (
        capture,
        clients,
        connect,
        events,
        hooks,
        jsonc,
        preview,
        record,
        status,
        toml_text,
    )
    from wellkept.connect import written_parts as parts

__all__ = [
    "capture",
    "clients",
    "connect",
    "events",
    "hooks",
    "jsonc",
    "parts",
    "preview",
    "record",
    "status",
    "toml_text",
]
__getattr__ = load_on_use(__name__, __all__)
