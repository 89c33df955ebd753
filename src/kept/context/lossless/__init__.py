"""The lossless engine: a tree of summaries over every message, each of which opens again."""

from kept.context.lossless.engine import Lossless

__all__ = ["Lossless"]
