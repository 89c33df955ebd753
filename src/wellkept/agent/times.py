"""Messages about a time: those that continue a question about one, and those that only name one."""

from wellkept.agent.utterance import Reading, asks_without_particle
from wellkept.core.search import SearchRequest
from wellkept.sessions.search.periods import carry_time, correct_spelling, names_only_time, read_period


def find_time_question(reading: Reading, before: str, now: float) -> str | None:
    """Return the question about a time that a message implies; None for a plain question and any other message.

    `before` is the previous question, which "and before that?" continues. A time alone, or a time before the question
    ("yesterday, what did we do"), is a question too; "I was away on Monday" is a statement.
    """
    text = reading.question
    asks = asks_without_particle(reading.tokens, reading.language)
    if before and (not asks or reading.begins("lead")):
        begin = next((token.start for token in reading.tokens if "lead" not in token.classes), 0)
        carried = carry_time(before, text[begin:], now)
        if carried is not None:
            return carried
    if reading.asks:
        return text if names_only_time(text, now) else None
    if asks:
        # the search recognises a misspelt time only in a text that begins like a question
        return (correct_spelling(text, now) or text) if names_period(text, now) else None
    return text if not reading.has("me") and names_only_time(text, now) else None


def names_period(text: str, now: float) -> bool:
    """Whether a question is only about a time with a start or an end."""
    period = read_period(SearchRequest(text), now)
    return period is not None and period.is_bounded
