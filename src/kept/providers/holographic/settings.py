"""Settings of the holographic provider, from `<home>/holographic.json`."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Annotated, Any, get_args, get_origin, get_type_hints

from kept.core.bounds import Between
from kept.core.errors import ConfigError
from kept.core.jsontypes import JSON


@dataclass(frozen=True, slots=True, kw_only=True)
class HolographicSettings:
    """What `holographic.json` may say."""

    auto_extract: bool = False
    """Whether facts that a person stated are taken from a session when it ends."""
    default_trust: Annotated[float, Between(0.0, 1.0)] = 0.5
    """The trust of a new fact."""
    min_trust_threshold: Annotated[float, Between(0.0, 1.0)] = 0.3
    """Facts below this trust are not recalled."""
    temporal_decay_half_life: Annotated[float, Between(0.0)] = 0.0
    """After how many days a fact counts half; 0 never."""
    hrr_dim: Annotated[int, Between(64, 8192)] = 1024
    """The length of the holographic vectors; a change is applied to all facts at the next start."""
    hrr_weight: Annotated[float, Between(0.0, 10.0)] = 0.3
    """How much holographic similarity counts beside the words."""


DESCRIPTIONS = {
    "auto_extract": "Take facts from a session when it ends",
    "default_trust": "Trust of a new fact, 0 to 1",
    "min_trust_threshold": "Recall no facts below this trust",
    "temporal_decay_half_life": "Days after which a fact counts half, 0 for never",
    "hrr_dim": "Length of the holographic vectors",
    "hrr_weight": "Weight of holographic similarity",
}
"""What setup asks, by setting."""


def settings_from(values: Mapping[str, JSON]) -> HolographicSettings:
    """Return settings from the values of the file; keys of other programs are passed over."""
    hints = get_type_hints(HolographicSettings, include_extras=True)
    own = {each.name for each in fields(HolographicSettings)}
    checked: dict[str, Any] = {
        name: _checked(name, value, hints[name]) for name, value in values.items() if name in own
    }
    return HolographicSettings(**checked)


def _checked(name: str, value: JSON, hint: object) -> JSON:
    kind, bounds = get_args(hint) if get_origin(hint) is Annotated else (hint, None)
    right = isinstance(value, bool) if kind is bool else isinstance(value, int | float) and not isinstance(value, bool)
    if kind is int and isinstance(value, float) and not value.is_integer():
        right = False
    if not right or (bounds is not None and isinstance(value, int | float) and not bounds.holds(value)):
        wanted = f"a number {bounds}" if bounds is not None else "true or false"
        raise ConfigError(f"holographic.json: {name} is {value!r}", f"set it to {wanted}")
    return int(value) if kind is int and isinstance(value, float) else value
