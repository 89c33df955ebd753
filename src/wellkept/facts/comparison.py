"""Whether one statement takes the place of another: they share a slot, and its value differs."""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Final

from msgspec import Struct

from wellkept.facts.reading import MOST_CHARACTERS, Reading
from wellkept.facts.relations import list_told

_LEAST_REPEATED: Final = 2
_MOST_OF: Final = 0.75
_LEAST_FRAME: Final = 2
_MOST_OF_VALUE: Final = 3
_MOST_OF_REPLY: Final = 4
_MOST_OF_BARE: Final = 2
_WHEN: Final = frozenset({"date", "weekday", "time"})


class Context(Struct, frozen=True):
    """How two statements stand to each other in a conversation."""

    is_same_session: bool = False
    is_next: bool = False
    """Whether the person stated nothing else between them."""


ALONE: Final = Context()


@lru_cache(maxsize=2_048)
def read(text: str) -> Reading:
    """Return the reading of a text; a search compares the same ones many times."""
    return Reading(text)


WEIGHTS: Mapping[str, float] = {
    "relation": 1.78,
    "same kind and change": 1.71,
    "ended": 1.67,
    "names old": 1.57,
    "likes": -1.29,
    "same kind": 1.20,
    "": -1.10,
    "returns": 1.06,
    "settles": 1.06,
    "other owner": -1.05,
    "of the past": -1.04,
    "correction": 0.68,
    "past": -0.53,
    "repeats": 0.46,
    "adds": -0.45,
    "tie": 0.36,
    "change": 0.12,
    "other thing": -0.12,
}
"""What each measure says, and how much without any: fitted by `benchmarks/facts.py`, which has the figures."""
SURE: Final = 0.65
"""The score from which a change of a page is proposed; docs/benchmarks.md says how many of such pairs are right."""
LIKELY: Final = 0.0
"""The score from which a search puts the later of two passages first."""
NEVER: Final = -100.0


def compare(earlier: Reading, later: Reading, context: Context = ALONE) -> float:
    """Return how surely the later statement takes the place of the earlier one; `SURE` and `LIKELY` are bounds."""
    # what is quickly known comes first: a search compares many pairs, most of which have nothing in common
    if not earlier.is_statement or not later.is_statement or (later.lead and later.is_closing):
        return NEVER
    is_apart = not context.is_next and earlier.keys.isdisjoint(later.keys)
    # or nothing differs that could be the value of one thing
    if (is_apart or (not later.is_changing and earlier.kinds.isdisjoint(later.kinds))) and (
        context.is_next or not _tell_one_thing(earlier, later)
    ):
        return NEVER
    if _restates(earlier, later) or _name_other_tools(earlier, later):
        return NEVER
    score = (
        sum(WEIGHTS.get(name, 0.0) * value for name, value in measure(earlier, later, context).items()) + WEIGHTS[""]
    )
    # "no, blue" says nothing but another value of what was said right before it
    is_bare = context.is_next and later.lead > 0 and later.parts[0].weight <= _MOST_OF_BARE
    return max(score, SURE) if is_bare else score


def repeats(statement: Reading, answer: Reading) -> bool:
    """Return whether an answer repeats what a statement tells, and adds little of its own: "Noted: 3 days"."""
    if len(answer.text) > MOST_CHARACTERS:
        return False
    common = statement.keys & answer.keys
    return bool(common) and len(answer.keys - statement.keys) <= len(common) + 2


def _restates(earlier: Reading, later: Reading) -> bool:
    """Whether the later text only says the earlier one again, in full or with more words."""
    if not later.signals.isdisjoint({"ended", "invalid"}):
        return False
    common = earlier.keys & later.keys
    if len(common) < _MOST_OF * min(len(earlier.keys), len(later.keys)):
        return False
    told = frozenset[str]().union(*earlier.values.values())
    return frozenset[str]().union(*later.values.values()) <= told and bool(told or earlier.keys == later.keys)


def _tell_one_thing(earlier: Reading, later: Reading) -> bool:
    """Whether both tell something that a person has one of: "I live in …" and "I moved to …"."""
    told = list_told(earlier.text)
    return bool(told) and any(told.get(name) == thing for name, thing in list_told(later.text).items())


def measure(earlier: Reading, later: Reading, context: Context = ALONE) -> dict[str, float]:
    """Return what tells whether the later statement takes the place of the earlier one, each from 0 to 1.

    The two sentences that share most are compared; in a short text what one sentence says of change goes for all.
    """
    parts = [(first, second) for first in earlier.parts for second in later.parts]
    best = max(parts, key=lambda pair: _share(*pair)) if len(parts) > 1 else parts[0]
    share = max(_share(*best), _share(earlier, later)) if earlier.is_short and later.is_short else _share(*best)
    return _measure(
        earlier if earlier.is_short else best[0], later if later.is_short else best[1], context, share=share
    )


def _share(earlier: Reading, later: Reading) -> float:
    """Return how surely two sentences are about one thing: by the words they share, or by their subjects."""
    before, after = earlier.content, later.content
    shared = before.keys() & after.keys()
    if not shared:
        return 0.0
    subject = shared & earlier.subject & later.subject
    weight = sum(before[key].weight for key in subject)
    least = min(
        sum(words[key].weight for key in keys) for words, keys in ((before, earlier.subject), (after, later.subject))
    )
    if weight >= 1.0 and weight >= _MOST_OF * least:
        return 1.0
    if _have_one_frame(earlier.frame, later.frame):
        return 1.0
    weight = sum(before[key].weight for key in shared)
    return min(1.0, weight / max(1.0, min(earlier.weight, later.weight) - 1.0))


def _have_one_frame(earlier: Sequence[str], later: Sequence[str]) -> bool:
    """Whether two sentences are one but for a value: "I drive a Volvo", "I drive a Saab"."""
    prefix = next((place for place, (old, new) in enumerate(zip(earlier, later, strict=False)) if old != new), 0)
    ends = zip(reversed(earlier[prefix:]), reversed(later[prefix:]), strict=False)
    suffix = next((place for place, (old, new) in enumerate(ends) if old != new), 0)
    values = [len(words) - prefix - suffix for words in (earlier, later)]
    return prefix >= _LEAST_FRAME and min(values) >= 1 and max(values) <= _MOST_OF_VALUE


def _measure(earlier: Reading, later: Reading, context: Context, *, share: float) -> dict[str, float]:
    before, after = earlier.content, later.content
    shared = before.keys() & after.keys()
    kinds = _compare_values(earlier, later)
    many = frozenset[str]().union(*(signals.many for signals in later.languages))
    shared_words = {later.content[key].text for key in shared}
    # a reason may follow: "no, white. Blue is dark."
    is_reply = context.is_next and later.parts[0].weight <= _MOST_OF_REPLY
    corrects = later.lead > 0 or "invalid" in later.signals
    # what a text says about change says it of the thing that both share, or of the message before it
    tie = max(share, float(is_reply and (later.is_changing or "refers" in later.signals)))
    same_kind = float(kinds > 0)
    repeats_all = len(before) >= _LEAST_REPEATED and len(shared) >= _MOST_OF * len(before) and len(after) > len(before)
    scopes = bool(earlier.scopes) and bool(later.scopes) and earlier.scopes.isdisjoint(later.scopes)
    is_one_thing = _tell_one_thing(earlier, later)
    features = {
        "tie": tie,
        "same kind": tie * same_kind,
        "same kind and change": tie * same_kind * float(later.is_changing),
        "correction": tie * float(corrects),
        "names old": tie * float(bool(later.replaced & before.keys())),
        "repeats": float(repeats_all and (corrects or kinds > 0)),
        "relation": float(is_one_thing),
        "likes": float(bool(shared_words) and shared_words <= many),
        "other thing": float(scopes or _differ_in_modifier(earlier, later, shared)),
        "other owner": float(("others" in earlier.signals) != ("others" in later.signals)),
        "adds": float("adds" in later.signals),
        # "I moved last month" is no history of a place to live
        "past": float("past" in later.signals and not later.is_changing and not is_one_thing),
        "of the past": float("past" in earlier.signals and "past" not in later.signals and not is_one_thing),
    }
    return features | {name: tie * float(name in later.signals) for name in ("change", "ended", "returns", "settles")}


def _compare_values(earlier: Reading, later: Reading) -> int:
    """Return 1 if both have a value of one kind and they differ, -1 if all values of one kind are the same."""
    result = 0
    for kind, values in earlier.values.items():
        others = later.values.get(kind, frozenset[str]())
        if not others and kind in _WHEN - {"time"}:
            others = frozenset[str]().union(*(later.values.get(name, frozenset()) for name in _WHEN - {"time"}))
        if not others and kind in {"time", "version"}:
            others = later.values.get("number", frozenset())
        if not others and kind.startswith("number"):
            # of a number with its unit and a bare one the unit is left out
            is_bare = kind == "number"
            names = (name for name in later.values if name in {"time", "version"} or name.startswith("number"))
            others = frozenset[str]().union(*(later.values[name] for name in names if is_bare or name == "number"))
        if not others:
            continue
        if others - values:
            return 1
        result = -1
    return result


def _name_other_tools(earlier: Reading, later: Reading) -> bool:
    """Whether both name tools, and none of one kind: a chat program replaces no package manager."""
    tools = [{kind for kind in reading.values if kind.startswith("tool")} for reading in (earlier, later)]
    return all(tools) and tools[0].isdisjoint(tools[1])


def _differ_in_modifier(earlier: Reading, later: Reading, shared: set[str]) -> bool:
    """Whether a word that both share is narrowed by different words: "staging server", "production server"."""
    for key in shared:
        left, right = earlier.modifiers.get(key), later.modifiers.get(key)
        if not left or not right or not left.isdisjoint(right):
            continue
        is_value = all(
            reading.content[key].start > reading.verb and any(reading.content[word].is_name for word in words)
            for reading, words in ((earlier, left), (later, right))
            if words <= reading.content.keys()
        )
        if not is_value:
            return True
    return False
