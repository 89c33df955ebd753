"""Honcho: a model of the person that is derived from conversations, in the cloud or self-hosted."""

from wellkept.providers.honcho.provider import HonchoProvider

__all__ = ["HonchoProvider"]
