"""Repair: any list becomes one that an API accepts."""

from wellkept.context.messages import MISSING_RESULT, OPENING, faults, repair
from wellkept.core.messages import Message, Role, TextPart, ToolCall

CALL = ToolCall("a", "terminal", "{}")
CALLING = Message(Role.ASSISTANT, "", tool_calls=(CALL,))
RESULT = Message(Role.TOOL, "done", tool_call_id="a")
USER = Message(Role.USER, "go")
SAID = Message(Role.ASSISTANT, "fine")


def test_a_valid_list_stays_as_it_is() -> None:
    """Nothing is touched that was right."""
    messages = (USER, CALLING, RESULT, SAID)

    assert repair(messages) == messages
    assert faults(messages) == []


def test_a_result_without_its_call_goes() -> None:
    """An orphan would be refused by both APIs."""
    assert repair([USER, RESULT, SAID]) == (USER, SAID)


def test_a_call_without_its_result_gets_a_stub() -> None:
    """An interrupted call is answered."""
    messages = repair([USER, CALLING, Message(Role.USER, "stop")])

    assert messages[2] == Message(Role.TOOL, MISSING_RESULT, tool_call_id="a", tool_name="terminal")
    assert faults(messages) == []


def test_two_messages_of_one_speaker_become_one_with_two_parts() -> None:
    """Each text stays whole."""
    assert repair([USER, Message(Role.USER, "now")]) == (Message(Role.USER, (TextPart("go"), TextPart("now"))),)


def test_an_assistant_that_speaks_first_gets_an_opening() -> None:
    """A conversation begins with the user."""
    assert repair([SAID])[0] == Message(Role.USER, OPENING)


def test_the_faults_of_a_list_are_named() -> None:
    """Every kind of fault is seen."""
    found = faults([SAID, SAID, RESULT, CALLING, USER, Message(Role.SYSTEM, "x"), Message(Role.USER, " ")])

    assert [one.partition(": ")[2] for one in found] == [
        "the first message is the assistant's",
        "two assistant messages in a row",
        "a result without its call",
        "call 'a' has no result",
        "a system message inside the conversation",
        "an empty message",
    ]
