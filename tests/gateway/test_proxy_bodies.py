"""Properties of the proxy's bodies: whatever a client sends, only an addition is added."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wellkept.gateway.proxy.bodies import ANTHROPIC, CHAT, RESPONSES, Body, Unspliceable, add_texts

SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20)
ANYTHING = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
PARTS = st.lists(
    st.fixed_dictionaries({"type": st.sampled_from(["text", "input_text", "image"]), "text": st.text(max_size=20)})
    | ANYTHING,
    max_size=3,
)
CONTENT = st.text(max_size=40) | PARTS | ANYTHING
MESSAGES = st.lists(
    st.fixed_dictionaries(
        {"role": st.sampled_from(["system", "developer", "user", "assistant", "tool"])}, optional={"content": CONTENT}
    )
    | ANYTHING,
    max_size=5,
)
BODIES = st.fixed_dictionaries(
    {},
    optional={
        "messages": MESSAGES | ANYTHING,
        "input": MESSAGES | CONTENT,
        "system": CONTENT,
        "instructions": CONTENT,
        "tools": ANYTHING,
        "x": ANYTHING,
    },
)
INDENTS = st.sampled_from([None, 0, 2, "\t"])
BLOCK = '<memory-context>\nA "block" \\ é 中\n</memory-context>'
PASSAGE = "a passage"


@pytest.mark.parametrize("additive", [ANTHROPIC, CHAT, RESPONSES], ids=["anthropic", "chat", "responses"])
@given(values=BODIES, indent=INDENTS, ascii_only=st.booleans(), data=st.data())
def test_every_byte_of_the_client_stays(additive, values, indent, ascii_only, data):
    """The bytes of a request are in the forwarded one, in order, and the rest of it is the addition."""
    raw = json.dumps(values, indent=indent, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass")
    place = data.draw(st.integers(0, 5))
    try:
        sent = add_texts(Body(raw), additive, BLOCK, {place: PASSAGE})
    except Unspliceable:
        return
    assert is_subsequence(raw, sent)
    after = json.loads(sent)
    assert (
        collect_texts(after).count(BLOCK) + sum(BLOCK in text and text != BLOCK for text in collect_texts(after)) == 1
    )
    for name in set(values) - {"messages", "input", "system", "instructions"}:
        assert after[name] == values[name]


def test_a_block_and_a_passage_in_one_empty_list_are_two_elements():
    """Both go to the content of the only message, which has no parts."""
    raw = b'{"messages": [{"role": "system", "content": []}]}'

    sent = json.loads(add_texts(Body(raw), CHAT, BLOCK, {0: PASSAGE}))

    assert [part["text"] for part in sent["messages"][0]["content"]] == [BLOCK, PASSAGE]


@given(raw=st.binary(max_size=200) | st.text(max_size=200).map(lambda text: text.encode("utf-8", "surrogatepass")))
def test_bytes_of_any_kind_are_read_or_refused(raw):
    """Nothing but `Unspliceable` leaves the reader."""
    try:
        body = Body(raw)
    except Unspliceable:
        return
    assert body.splice([]) == raw


def is_subsequence(part: bytes, whole: bytes) -> bool:
    """Return whether all bytes of `part` are in `whole`, in their order."""
    rest = iter(whole)
    return all(byte in rest for byte in part)


def collect_texts(value: object) -> list[str]:
    """Return all texts in a value."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    return [text for item in value for text in collect_texts(item)] if isinstance(value, list) else []
