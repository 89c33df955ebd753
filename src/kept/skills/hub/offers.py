"""What sources offer: skills by name and description, and those of them that fit a question."""

from collections.abc import Iterable
from dataclasses import dataclass

from kept.skills.words import terms


@dataclass(frozen=True, slots=True)
class Offer:
    """A skill that could be installed."""

    name: str
    description: str
    source: str


def fitting(query: str, offers: Iterable[Offer]) -> list[Offer]:
    """Return the offers that share a word with `query`, those that share most first, else as they came."""
    wanted = set(terms(query))
    scored = [(len(wanted.intersection(terms(f"{offer.name} {offer.description}"))), offer) for offer in offers]
    return [offer for score, offer in sorted(scored, key=lambda each: -each[0]) if score]
