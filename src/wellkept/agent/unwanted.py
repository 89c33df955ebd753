"""What an order to forget means: the entries, proposals and messages that tell it, as texts to show and to remove."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from wellkept.agent.fact_wording import strip_correction
from wellkept.agent.passages import MIN_SCORE, Passage, relevances, search_pages
from wellkept.agent.statements import tidy
from wellkept.agent.utterance import is_small_talk
from wellkept.sessions.search.corrections import begins_correction

if TYPE_CHECKING:
    from wellkept.languages.language import Language
    from wellkept.memory.approval import Approvals
    from wellkept.memory.store import MemoryStore


def find_unwanted(
    unwanted: str,
    places: "tuple[MemoryStore, Approvals]",
    past: Sequence[Passage],
    said: Sequence[Passage],
    spoken: "Language",
) -> list[str]:
    """Return the texts of the pages, of what waits and of past conversations that an order to forget means.

    `past` is what a search for it found, `said` what the person stated lately.
    """
    memory, approvals = places
    found = [passage.text for passage in search_pages(memory, unwanted)]
    candidates = [text for one in approvals.waiting() for text in one.texts]
    candidates += [one.text for one in past if not one.day]
    # each by itself: a word does not weigh less because the past says it often
    found += [text for text in candidates if relevances(unwanted, [text])[0] >= 2 * MIN_SCORE]
    corrections = {one.corrected_by for one in past if one.text in found and one.corrected_by}
    # "no, it is 4472" names nothing, but tells what is to be forgotten
    found += [one.text for one in past if one.number in corrections and not is_small_talk(one.text)]
    found += [one.text for one in said if any(_repeats_value(one.text, text, spoken) for text in found)]
    return _drop_contained(found)


def _repeats_value(text: str, whole: str, spoken: "Language") -> bool:
    """Whether a bare correction gives the value that a whole statement tells."""
    if not begins_correction(text):
        return False
    value = spoken.pattern("copula").sub("", tidy(strip_correction(text)))
    value = spoken.pattern("pronoun").sub("", value).strip()
    return bool(value) and value.casefold() in whole.casefold()


def _drop_contained(texts: Sequence[str]) -> list[str]:
    """Return the texts without those that say again what a shorter one says: with that one they go, too."""
    plain = {tidy(text).casefold(): text for text in reversed(texts)}
    return [text for key, text in reversed(plain.items()) if not any(one in key for one in plain if one != key)]
