"""The former place of `clip`, which the guide for authors of context engines named."""

from wellkept.context.summary import clip, clipped

__all__ = ["clip", "clipped"]
