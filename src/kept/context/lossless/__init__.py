"""The lossless engine: a tree of summaries over all messages, with tools to open the originals."""

from kept.context.lossless.engine import Lossless

__all__ = ["Lossless"]
