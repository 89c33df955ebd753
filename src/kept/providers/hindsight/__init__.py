"""Hindsight: facts, experiences and observations in banks; in the cloud, on a server, or started by kept."""

from kept.providers.hindsight.provider import HindsightProvider

__all__ = ["HindsightProvider"]
