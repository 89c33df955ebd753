"""The former place of `Window`, which the guide for programs named."""

from wellkept.context.boundaries import Window

__all__ = ["Window"]
