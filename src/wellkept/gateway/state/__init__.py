"""What only the gateway stores: tokens, pairings, messages of platforms, conversations of clients and of the proxy."""

from typing import TYPE_CHECKING

from wellkept.core.text import load_on_use

if TYPE_CHECKING:
    from wellkept.gateway.state import (
        client_histories,
        conversation_keys,
        pairing,
        platform_messages,
        proxied_conversations,
        tokens,
    )

__all__ = [
    "client_histories",
    "conversation_keys",
    "pairing",
    "platform_messages",
    "proxied_conversations",
    "tokens",
]
__getattr__ = load_on_use(__name__, __all__)
