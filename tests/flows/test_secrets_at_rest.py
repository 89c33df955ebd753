"""Credentials that people paste: none of their bytes reach a file of the home."""

import random
from pathlib import Path

import pytest

from wellkept.core.messages import Message, NewMessage, Role, ToolCall
from wellkept.core.text import dumps
from wellkept.sessions.redaction import Redaction
from wellkept.testing.credentials import make_credential

CORPUS = Path(__file__).parent.parent / "corpora" / "secret_forms.txt"
FORMS = {
    "vault": "hvs.<u24>",
    "age": "AGE-SECRET-KEY-1<A58>",
    "discord": "MTE<21>.G<u5>.<u38>",
    "mailgun": "key-<h32>",
    "databricks": "dapi<h32>",
    "linear": "lin_api_<40>",
    "notion": "ntn_<46>",
    "doppler": "dp.pt.<43>",
    "curl": "curl -u admin:<l14> https://acme.test",
    "letters": "password=<l14>",
}


def _bytes_at_rest(home):
    return b"\0".join(path.read_bytes() for path in home.rglob("*") if path.is_file())


def _random_part(form, secret):
    before, _, rest = form.partition("<")
    after = rest.partition(">")[2].partition("<")[0]
    return secret.removeprefix(before).partition(after)[0] if after else secret.removeprefix(before)


@pytest.mark.parametrize("name", FORMS)
def test_no_byte_of_a_credential_is_stored(kept, home, name):
    """Sent as a message, used as a title, and added to a page by a person or a tool: nothing of it is on the disk."""
    secret = make_credential(FORMS[name], random.Random(name))
    marker = _random_part(FORMS[name], secret).encode()
    assert len(marker) >= 8

    said = kept("run", f"please note {secret} for later")
    kept("sessions", "rename", _newest(kept), f"about {secret}")
    added = kept("memory", "add", f"The deploy needs {secret}")
    kept("tool", "memory", dumps({"action": "add", "target": "memory", "content": f"It is {secret}"}))

    assert said.code == 0
    assert added.code != 0
    assert marker not in _bytes_at_rest(home)


def _newest(kept):
    return kept("sessions", "list", "--json").json[0]["session_id"]


@pytest.mark.parametrize("name", FORMS)
def test_arguments_of_a_tool_are_redacted(name):
    """A command line inside the JSON of a call, and the answer of the tool, lose their credentials."""
    secret = make_credential(FORMS[name], random.Random(name))
    marker = _random_part(FORMS[name], secret)
    call = ToolCall("1", "terminal", dumps({"command": f"echo ok\n{secret}"}))
    asked = NewMessage(Message(Role.ASSISTANT, "", tool_calls=(call,)), 0.0, "chat")
    told = NewMessage(Message(Role.TOOL, dumps({"output": f"line\n{secret}\n"}), tool_call_id="1"), 0.0, "chat")

    stored = [Redaction().message(each).message for each in (asked, told)]

    assert marker not in repr(stored)


def _said(text, role=Role.USER, **more):
    return NewMessage(Message(role, text), 0.0, "chat", **more)


@pytest.mark.parametrize("odd", ["", "İstanbul and ẞ: "], ids=["plain", "letters that grow in lower case"])
def test_many_messages_are_redacted_as_each_alone(odd):
    """An import looks at many texts at once; whichever holds a credential, each form is found as in a single message."""
    chance = random.Random(11)
    forms = [line.split("\t")[1] for line in CORPUS.read_text().splitlines() if "\t" in line]
    secrets = [make_credential(form, chance) for form in [*forms, *FORMS.values()]]
    plain = [_said(f"{odd}We had lunch at the harbour, number {number}.") for number in range(70)]
    mixed = list(plain)
    for secret in secrets:
        mixed.insert(chance.randrange(len(mixed)), _said(f"{odd}please note {secret} for later"))
    mixed.append(_said('{"password": "tr0ub4dor&3x"}', Role.TOOL))
    mixed.append(_said("sent otherwise", api_content=f"with {secrets[0]}"))

    assert Redaction().messages(mixed) == [Redaction().message(each) for each in mixed]
    assert Redaction().messages(plain) == plain
    assert Redaction(is_on=False).messages(mixed) == mixed
    for secret in secrets:
        group = [*plain[:9], _said(f"it is {secret} now"), *plain[9:20]]
        assert Redaction().messages(group)[9] == Redaction().message(group[9])
