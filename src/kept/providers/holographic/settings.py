"""Settings of the holographic provider, from `<home>/holographic.json`."""

from dataclasses import dataclass
from typing import Annotated

from kept.core.settings import Between


@dataclass(frozen=True, slots=True, kw_only=True)
class HolographicSettings:
    """The settings in `holographic.json`."""

    auto_extract: bool = False
    """Whether facts that the person stated are stored when a session ends."""
    default_trust: Annotated[float, Between(0.0, 1.0)] = 0.5
    """The trust of a new fact."""
    min_trust_threshold: Annotated[float, Between(0.0, 1.0)] = 0.3
    """Facts below this trust are not recalled."""
    temporal_decay_half_life: Annotated[float, Between(0.0)] = 0.0
    """After how many days a fact counts half; 0 never."""
    hrr_dim: Annotated[int, Between(64, 8192)] = 1024
    """The length of the holographic vectors; a change is applied to all facts at the next start."""
    hrr_weight: Annotated[float, Between(0.0, 10.0)] = 0.3
    """The weight of holographic similarity relative to the words."""


QUESTIONS = {
    "auto_extract": "Take facts from a session when it ends",
    "default_trust": "Trust of a new fact, 0 to 1",
    "min_trust_threshold": "Recall no facts below this trust",
    "temporal_decay_half_life": "Days after which a fact counts half, 0 for never",
    "hrr_dim": "Length of the holographic vectors",
    "hrr_weight": "Weight of holographic similarity",
}
"""The questions of setup, by setting."""
