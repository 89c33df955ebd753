"""`kept receipts` and `kept sessions why` as a person runs them."""

import json

import pytest

LINES = [
    {"session_id": "conv1", "role": "user", "content": "Where is the greenhouse heater?", "timestamp": 1690000000},
    {"session_id": "conv1", "role": "assistant", "content": "The greenhouse heater is in the shed.", "timestamp": 1690000060},
    {"session_id": "conv2", "role": "user", "content": "Lisbon in spring", "timestamp": 1690000070},
]  # fmt: skip


@pytest.fixture
def kept(run, tmp_path):
    path = tmp_path / "talk.jsonl"
    path.write_text("".join(f"{json.dumps(line)}\n" for line in LINES))
    assert run("sessions", "import", str(path)).code == 0
    return run


@pytest.fixture
def asked(kept):
    assert kept("tool", "session_search", '{"query": "greenhouse heater"}').code == 0
    return kept


def test_a_search_of_a_model_is_listed_and_shown(asked):
    """List and show name the query, the message and its score."""
    (receipt,) = json.loads(asked("receipts", "list", "--json").out)
    shown = json.loads(asked("receipts", "show", str(receipt["id"]), "--json").out)

    assert (receipt["kind"], receipt["query"]) == ("search", "greenhouse heater")
    assert "greenhouse heater" in shown["shown"][0]["text"]
    assert shown["shown"][0]["parts"]["words"] > 0
    assert "greenhouse heater" in asked("receipts", "list").out
    assert "words" in asked("receipts", "show", "1").out


def test_marks_come_and_go(asked):
    """Mark, see it, take it back; a second time there is none."""
    marked = json.loads(asked("receipts", "mark", "1", "never", "--json").out)
    listed = asked("receipts", "list").out
    undone = asked("receipts", "unmark", "1")
    again = asked("receipts", "unmark", "1")

    assert [one["mark"] for one in marked["marks"]] == ["never"]
    assert "[never]" in listed
    assert (undone.code, undone.out) == (0, "1 mark removed\n")
    assert again.code == 2
    assert "[never]" not in asked("receipts", "list").out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("show", "99"), "there is no receipt 99"),
        (("mark", "99", "useful"), "there is no receipt 99"),
        (("mark", "1", "great"), "great"),
        (("mark", "1", "never", "--message", "77"), "does not show message 77"),
        (("show", "0"), "0"),
        (("list", "--kind", "odd"), "odd"),
    ],
)
def test_bad_input_is_told(asked, words, said):
    """Unknown ids, marks and kinds: exit 2 and one sentence."""
    ran = asked("receipts", *words)

    assert ran.code == 2
    assert said in ran.err


def test_another_user_sees_no_receipts(asked):
    """Receipts belong to one user."""
    asked("user", "create", "kim")

    assert json.loads(asked("--as", "kim", "receipts", "list", "--json").out) == []
    assert asked("--as", "kim", "receipts", "show", "1").code == 2


def test_forgetting_words_removes_them_from_receipts(asked):
    """Neither the query nor the forgotten messages are left in a receipt."""
    asked("forget", "--query", "greenhouse", "--yes")

    left = json.loads(asked("receipts", "list", "--json").out)
    assert [(one["query"], one["shown"]) for one in left] in ([], [("", [])])


def test_why_explains_rank_and_absence(kept):
    """The message that is found has a rank and parts; another one says what it lacks."""
    hit = json.loads(kept("sessions", "search", "greenhouse heater shed", "--json").out)["passages"][0]
    found = json.loads(kept("sessions", "why", str(hit["id"]), "--query", "greenhouse heater shed", "--json").out)
    absent = kept("sessions", "why", "3", "--query", "greenhouse heater shed")

    assert (found["outcome"], found["rank"], found["message_rank"]) == ("shown", 1, 1)
    assert found["parts"] == {name: round(value, 6) for name, value in hit["parts"].items()}
    assert "greenhous" in absent.out
    assert "none of the words" in absent.out


def test_why_of_what_no_search_can_find(kept):
    """A message in the trash says so; an unknown id and another user's are the same: exit 2."""
    kept("user", "create", "kim")
    kept("sessions", "delete", "conv2", "--yes")

    told = json.loads(kept("sessions", "why", "3", "--query", "Lisbon", "--json").out)
    unknown = kept("sessions", "why", "99", "--query", "Lisbon")
    foreign = kept("--as", "kim", "sessions", "why", "1", "--query", "greenhouse")

    assert (told["outcome"], told["excluded_by"], told["rank"]) == ("excluded", "trashed", None)
    assert (unknown.code, foreign.code) == (2, 2)
    assert "there is no message 1" in foreign.err


def test_forgetting_a_user_removes_every_receipt(asked):
    """Also those of searches outside a session; another user's stay."""
    asked("user", "create", "kim")
    asked("--as", "kim", "memory", "add", "Kim likes violins.")
    asked("--as", "kim", "tool", "session_search", '{"query": "violins"}')

    assert asked("forget", "--user", "kim", "--yes").code == 0

    asked("user", "create", "kim")
    assert json.loads(asked("--as", "kim", "receipts", "list", "--json").out) == []
    assert len(json.loads(asked("receipts", "list", "--json").out)) == 1
