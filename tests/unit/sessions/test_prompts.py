"""Texts that a model reads, byte for byte."""

import hashlib

from wellkept.sessions.tool import instructions, search_schema, transcript
from wellkept.testing.session_store_contract import START, said, session


def digest(text):
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def test_the_texts_change_only_on_purpose():
    """The tool's description and the summary's instructions are part of every prompt's prefix: a change is a decision."""
    assert (digest(search_schema().description), digest(instructions())) == ("beae5ec75573ba18", "18a6a9bc0157afad")


def test_a_transcript_is_centred_on_the_match(store):
    """What a summary reads is at most 100,000 characters around the match, each message with its id."""
    store.create(session("a"))
    ids = store.append(session("a").id, [said(f"{number} " + "x" * 9_000, at=START + number) for number in range(40)])

    text = transcript(store.window(ids[20], before=200, after=200), ids[20])

    assert len(text) <= 100_000
    assert f"[{ids[20]}]" in text
    assert f"[{ids[0]}]" not in text
    assert text.index(f"[{ids[19]}]") < text.index(f"[{ids[20]}]") < text.index(f"[{ids[21]}]")
