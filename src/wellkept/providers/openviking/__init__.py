"""OpenViking: a file system of contexts on a server of your own, read in tiers."""

from wellkept.providers.openviking.provider import OpenVikingProvider

__all__ = ["OpenVikingProvider"]
