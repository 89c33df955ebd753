"""Large binary stretches of a message."""

import base64

from hypothesis import given
from hypothesis import strategies as st

from wellkept.sessions.records import blob_of, blob_text, cut_blobs, join_blobs


@given(st.binary(min_size=1_600, max_size=4_000), st.text(max_size=20), st.text(max_size=20))
def test_what_is_cut_comes_back(data, before, after):
    """A text with base64 in it comes back byte for byte, and the base64 is not in what is indexed."""
    text = f"{before} {base64.b64encode(data).decode()} {after}"

    short, blobs = cut_blobs(text)
    load = {blob.hash: blob_text(blob.hash, blob.data) for blob in blobs}.get

    assert join_blobs(short, [blob.hash for blob in blobs], load) == text


@given(st.text())
def test_any_text_can_be_a_blob(text):
    """A blob gives back the text it was made of, base64 or not."""
    clean = text.encode("utf-8", "replace").decode()
    blob = blob_of(clean)

    assert blob_text(blob.hash, blob.data) == clean


def test_words_are_not_binary():
    """A long row of letters, digits or dashes stays in the text."""
    for text in ("a" * 9_000, "-" * 9_000, "1234567890" * 900, "word " * 2_000):
        assert cut_blobs(text) == (text, [])
