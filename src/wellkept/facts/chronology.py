"""Which of several statements hold: for each one that no longer does, the later one that took its place."""

import re
from collections import Counter
from collections.abc import Collection, Sequence
from typing import Final

from msgspec import Struct

from wellkept.facts.comparison import LIKELY, SURE, Context, compare, read
from wellkept.facts.reading import Reading
from wellkept.languages.questions import is_asking

_NEAR: Final = 6
"""Messages of a conversation after which a bare "no, blue" no longer refers to a statement."""


_FIGURES: Final = re.compile(r"\d+")


class Statement(Struct, frozen=True):
    """Something that a person said, with its moment and its place."""

    text: str
    moment: float
    session_id: str = ""
    number: int = 0
    """Its message, in order of the conversation; 0 where it is no message."""
    speaker: str = ""
    """Who said it, where several people talk; nobody corrects what another person said of themselves."""


def replaces(earlier: Statement, later: Statement) -> bool:
    """Return whether `later` takes the place of `earlier`: it tells another value of the same thing."""
    return compare(read(earlier.text), read(later.text), _relate(earlier, later, ())) >= SURE


def find_superseded(
    statements: Sequence[Statement], *, among: Collection[int] | None = None, likely: Collection[int] = ()
) -> dict[int, int]:
    """Return which statements no longer hold: the place of the newest one that took its place, by its own place.

    With `among` only these places are looked at, and what took their place. One of `likely` may take a place although
    it is not sure, because something else speaks for it: it answers the same question.

    A statement takes the place of one other: where it could be that of two that hold beside each other ("We use npm",
    "We use nginx", then "we use yarn now"), it takes none.
    """
    order = sorted(range(len(statements)), key=lambda place: (statements[place].moment, statements[place].number))
    ranks = {place: rank for rank, place in enumerate(order)}
    waiting = list(range(len(statements)) if among is None else among)
    newest: dict[int, int] = {}
    replaced = set[tuple[int, int]]()
    compared = set[int]()
    while waiting:
        old = waiting.pop()
        if old in compared:
            continue
        compared.add(old)
        earlier = statements[old]
        for rank in range(ranks[old] + 1, len(order)):
            later = statements[order[rank]]
            if later.speaker != earlier.speaker:
                continue
            between = [statements[place] for place in order[ranks[old] + 1 : rank]]
            least = LIKELY if order[rank] in likely else SURE
            if compare(read(earlier.text), read(later.text), _relate(earlier, later, between)) >= least:
                newest[old] = order[rank]
                replaced.add((old, order[rank]))
                waiting.append(order[rank])
    claims = Counter(newest.values())
    return {
        old: new
        for old, new in newest.items()
        if claims[new] == 1
        or not _is_vague(statements, [one for one, other in newest.items() if other == new], replaced)
    }


def find_reason(statements: Sequence[Statement], old: int, withdrawal: int) -> int | None:
    """Return the statement that one which only withdraws another follows from: the correction right before it.

    "This means our earlier estimate was wrong" tells no value; the correction before it does. "That's wrong, the rate
    is $150" tells its value itself, and has no reason.
    """
    last, reading = statements[withdrawal], read(statements[withdrawal].text)
    text = statements[old].text.casefold()
    if not reading.signals >= {"invalid", "refers"} or any(
        not all(figure in text for figure in _FIGURES.findall(amount)) for amount in _list_amounts(reading)
    ):
        return None
    before = [
        place
        for place, statement in enumerate(statements)
        if statement.session_id == last.session_id
        and 0 < last.number - statement.number <= _NEAR
        and place != old
        and read(statement.text).is_changing
    ]
    return max(before, key=lambda place: statements[place].number, default=None)


def _list_amounts(reading: Reading) -> frozenset[str]:
    """Return the values of a statement that are written in figures or are dates; a name may only be shouted."""
    return frozenset[str]().union(*(values for kind, values in reading.values.items() if kind != "name"))


def _relate(earlier: Statement, later: Statement, between: Sequence[Statement]) -> Context:
    is_same = bool(later.session_id) and earlier.session_id == later.session_id
    if not is_same:
        return Context()
    if not 0 < later.number - earlier.number <= _NEAR:
        return Context(is_same)
    own = [one for one in between if one.session_id == later.session_id and earlier.number < one.number < later.number]
    if own and is_asking(own[-1].text):
        # after a question its answer is corrected: the statement that the question is about, and no other
        asked = read(own[-1].text).named
        return Context(is_same, is_next=bool(asked & read(earlier.text).keys))
    has_other = any(len(read(one.text).words) > 2 for one in own)
    return Context(is_same, is_next=not has_other)


def _is_vague(statements: Sequence[Statement], olds: Sequence[int], replaced: Collection[tuple[int, int]]) -> bool:
    """Whether some of these statements hold beside each other, so that a later one cannot have replaced them all."""
    texts = {statements[old].text.casefold(): old for old in olds}
    alone = [old for old in texts.values() if not any((old, other) in replaced for other in texts.values())]
    return len(alone) > 1 and not any(
        read(statements[first].text).keys & read(statements[second].text).keys
        for first in alone
        for second in alone
        if first < second
    )
