"""RetainDB: typed memories with hybrid search, in the cloud or on a server of your own."""

from wellkept.providers.retaindb.provider import RetainDBProvider

__all__ = ["RetainDBProvider"]
