"""Failures in words: what each vendor says, and what it means here."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wellkept.core.errors import ContextOverflow, ModelBusy, ModelRefused
from wellkept.llm.endpoints import Endpoint
from wellkept.llm.sdk import LONGEST_MESSAGE, Failure, as_error, one_line, retry_after

HERE = Endpoint("openai", "https://example.test/v1", "sk-very-secret-key", "OPENAI_API_KEY")

OVERFLOWS = [
    Failure(400, frozenset({"context_length_exceeded"}), "whatever"),
    Failure(400, frozenset({"invalid_request_error"}), "prompt is too long: 208310 tokens > 200000 maximum"),
    Failure(400, frozenset(), "input length and `max_tokens` exceed context limit: 190000 + 16000 > 200000"),
    Failure(413, frozenset({"request_too_large"}), "Request exceeds the maximum size"),
    Failure(400, frozenset({"exceed_context_size_error"}), "the request exceeds the available context size"),
    Failure(500, frozenset(), "the request exceeds the available context size. try increasing it"),
    Failure(400, frozenset(), "This model's maximum context length is 8192 tokens. However, you requested 9000"),
    Failure(400, frozenset(), "This endpoint's maximum context length is 200000 tokens."),
]


@pytest.mark.parametrize("failure", OVERFLOWS)
def test_every_way_of_saying_too_long(failure: Failure):
    """Each vendor's and server's words for an oversized request are understood."""
    assert isinstance(as_error(failure, HERE, model="m"), ContextOverflow)


@pytest.mark.parametrize(
    "failure",
    [
        Failure(400, frozenset(), "max_tokens: 99999 is greater than the maximum allowed"),
        Failure(400, frozenset(), "temperature is not supported with this model"),
        Failure(404, frozenset(), "no such model; its context window exceeds nothing"),
    ],
)
def test_other_refusals_are_not_overflows(failure: Failure):
    """A refusal for another reason must not start a compaction."""
    assert isinstance(as_error(failure, HERE, model="m"), ModelRefused)


@pytest.mark.parametrize(
    ("kind", "expected"),
    [("overloaded_error", ModelBusy), ("api_error", ModelBusy), ("rate_limit_error", ModelBusy), ("502", ModelBusy),
     ("authentication_error", ModelRefused), ("invalid_request_error", ModelRefused), ("unheard_of", ModelBusy)],
)  # fmt: skip
def test_errors_without_a_status_are_known_by_their_word(kind: str, expected: type):
    """Inside a stream an error has no status of its own; its word decides."""
    assert type(as_error(Failure(200, frozenset({kind}), "x"), HERE, model="m")) is expected


@given(st.integers(400, 599), st.text(max_size=600))
def test_an_error_is_one_short_line_without_the_key(status: int, message: str):
    """Whatever the server says, the person reads one line, and the key is not in it."""
    line = str(as_error(Failure(status, message=f"{message}{HERE.api_key}{message}"), HERE, model="m"))

    assert len(line.splitlines()) == 1
    assert HERE.api_key not in line
    assert len(line) < LONGEST_MESSAGE + 300


@given(st.text(max_size=800))
def test_one_line(text: str):
    """Any text becomes one line of bounded length."""
    assert len(one_line(text)) <= LONGEST_MESSAGE + 1
    assert len(one_line(text).splitlines()) <= 1


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [({}, None), ({"retry-after": "7"}, 7), ({"retry-after": "1.5"}, 1.5), ({"retry-after-ms": "250"}, 0.25),
     ({"retry-after": "Sun, 15 Nov 2026 10:00:30 GMT"}, 30), ({"retry-after": "Sun, 15 Nov 2020 10:00:00 GMT"}, 0),
     ({"retry-after": "soon"}, None), ({"retry-after": "-3"}, 0), ({"retry-after": "nan"}, 0)],
)  # fmt: skip
def test_both_forms_of_retry_after(headers: dict[str, str], seconds: float | None):
    """Seconds, milliseconds and dates are understood; nonsense is not a wish."""
    assert retry_after(headers, datetime(2026, 11, 15, 10, 0, 0, tzinfo=UTC)) == seconds
