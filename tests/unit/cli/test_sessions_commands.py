"""`kept sessions`, `kept forget` and `kept usage` as a person runs them."""

import json
import random
from datetime import UTC, datetime, timedelta

import pytest

LINES = [
    {"session_id": "conv1", "role": "user", "content": "Caroline: I went to a LGBTQ support group yesterday.", "timestamp": "2023-05-08T13:56:00", "external_id": "D1:3", "title": "Support"},
    {"session_id": "conv1", "role": "assistant", "content": "Melanie: That is great, Caroline!", "timestamp": 1683554220, "external_id": "D1:4"},
    {"session_id": "conv2", "role": "user", "content": "The deployment uses camelCaseNames in src/app/main.py v1.2.3", "timestamp": 1690000000, "source": "telegram"},
    {"session_id": "conv2", "role": "assistant", "content": "我喜欢东京塔。 Привет мир, مرحبا بالعالم, สวัสดีชาวโลก 안녕하세요 세계", "timestamp": 1690000060},
]  # fmt: skip
KIMS = {"session_id": "conv3", "role": "user", "content": "A violin for Kim", "timestamp": 1690000070, "user_id": "kim"}


@pytest.fixture
def transcript(tmp_path):
    path = tmp_path / "talk.jsonl"
    path.write_text("".join(f"{json.dumps(line)}\n" for line in LINES) + "not json\n")
    return str(path)


@pytest.fixture
def kept(run, transcript):
    assert run("sessions", "import", transcript).code == 0
    return run


def test_import_says_what_it_did(run, transcript):
    """An import counts what is new and names bad lines; a second one adds nothing."""
    first = run("sessions", "import", transcript)
    second = run("sessions", "import", transcript, "--json")

    assert first.code == second.code == 0
    assert "4 messages in 2 new sessions" in first.out
    assert "line 5: not JSON: Expecting value at column 1" in first.err
    report = json.loads(second.out)
    assert (report["messages"], report["sessions"], report["known"], report["bad"]) == (0, 0, 4, 1)


def test_a_batch_answers_line_by_line(kept, tmp_path):
    """One JSON line per query line, blank ones included, in the order asked."""
    queries = tmp_path / "queries.txt"
    queries.write_text(
        'When did Caroline go to the LGBTQ support group?\n\n东京\n"unbalanced\nthe and of\n' + "x" * 10_000
    )

    ran = kept("sessions", "search", "--batch", str(queries), "--limit", "50", "--json")

    answers = [json.loads(line) for line in ran.out.splitlines()]
    assert len(answers) == 6
    assert all(set(answer) == {"query", "sessions", "messages", "abstained"} for answer in answers)
    assert answers[0]["sessions"][0]["session_id"] == "conv1"
    assert answers[0]["messages"][0]["external_id"] == "D1:3"
    assert answers[0]["abstained"] is False
    assert (answers[1]["query"], answers[1]["sessions"], answers[1]["abstained"]) == ("", [], True)
    assert answers[2]["sessions"][0]["session_id"] == "conv2"


@pytest.mark.parametrize(
    "query",
    [
        "京",
        "东京塔",
        "привет",
        "مرحبا",
        "สวัสดี",
        "안녕",
        "camel",
        "src/app/main.py",
        "v1.2.3",
        '"uses camelCaseNames"',
        "deploy*",
        "deployment NOT violin",
    ],
)
def test_every_script_and_syntax_is_found(kept, query):
    """Words of any script, parts of names, paths, versions, phrases and operators find their message."""
    ran = kept("sessions", "search", query, "--json", "--limit", "5")

    assert json.loads(ran.out)["sessions"][0]["session_id"] == "conv2"


def test_the_tool_finds_the_message(kept):
    """The exact call of the issue."""
    ran = kept("tool", "session_search", '{"query": "When did Caroline go to the LGBTQ support group?"}')

    result = json.loads(ran.out)["results"][0]
    assert (result["session_id"], result["match_message_id"]) == ("conv1", 1)
    assert result["when"] == "2023-05-08T13:56:00.000Z"


def test_a_person_lists_reads_and_renames(kept):
    """Lists, transcripts and windows show dates, ids and text; titles are unique."""
    assert "Support" in kept("sessions", "list").out
    shown = kept("sessions", "show", "conv1").out
    assert "[1]" in shown
    assert "support group" in shown
    assert json.loads(kept("sessions", "scroll", "2", "--json").out)["messages"][1]["anchor"] is True
    assert kept("sessions", "rename", "conv2", "Deployment").out.strip() == "conv2  Deployment"
    assert kept("sessions", "search", "support group").out.splitlines()[1].strip().startswith("user: Caroline")
    assert kept("sessions", "show", "nobody").code == 2
    assert kept("sessions", "scroll", "999").code == 2


def test_export_is_taken_back(kept, tmp_path):
    """Every line that export writes is accepted by import, and nothing is added."""
    out = tmp_path / "all.jsonl"

    assert kept("sessions", "export", "--out", str(out)).code == 0

    first = json.loads(out.read_text().splitlines()[0])
    assert (first["type"], first["session_id"]) == ("session", "conv1")
    report = json.loads(kept("sessions", "import", str(out), "--json").out)
    assert (report["messages"], report["bad"], report["known"]) == (0, 0, 4)


def test_delete_and_restore(kept):
    """Deleting asks, hides, and can be taken back."""
    assert kept("sessions", "delete", "conv1").code == 2
    assert kept("sessions", "delete", "conv1", "--yes").code == 0
    assert "conv1" not in kept("sessions", "list").out
    assert "conv1" in kept("sessions", "list", "--trash").out
    assert kept("sessions", "restore", "conv1").code == 0
    assert "conv1" in kept("sessions", "list").out


def test_forget_is_final(kept, home):
    """Forgetting removes the bytes, leaves a report without the content, and an import does not bring it back."""
    plan = kept("forget", "--session", "conv1", "--dry-run")
    ran = kept("forget", "--session", "conv1", "--yes")

    assert "messages           2" in plan.out
    assert ran.code == 0
    assert kept("sessions", "search", "support group").out == ""
    raw = b"".join(path.read_bytes() for path in home.glob("state.db*")).lower()
    assert b"support group" not in raw
    assert b"caroline" not in raw
    report = next((home / "forgotten").glob("*.json")).read_text()
    assert json.loads(report)["messages"] == 2
    assert "Caroline" not in report
    assert kept("forget", "--session", "conv1", "--yes").code == 2
    assert kept("forget", "--yes").code == 2


def test_forget_empties_the_input_history(kept, home):
    """What was typed in chats stays under no arrow key."""
    (home / "chat_history").write_text("+I went to a LGBTQ support group")

    ran = kept("forget", "--session", "conv1", "--yes", "--json")

    assert json.loads(ran.out)["input_history"] is True
    assert not (home / "chat_history").exists()


@pytest.fixture
def shared(kept, tmp_path):
    """A home that also holds a conversation of Kim."""
    path = tmp_path / "kim.jsonl"
    path.write_text(f"{json.dumps(KIMS)}\n")
    assert kept("sessions", "import", str(path)).code == 0
    return kept


def test_another_users_sessions_are_shown_when_named(shared):
    """Without --user the commands show the owner's; with it, that user's alone."""

    def ids(*arguments):
        return {one["session_id"] for one in json.loads(shared(*arguments, "--json").out)}

    assert ids("sessions", "list") == {"conv1", "conv2"}
    assert ids("sessions", "list", "--user", "kim") == {"conv3"}
    assert shared("sessions", "search", "violin").out == ""
    assert "violin" in shared("sessions", "search", "violin", "--user", "kim").out
    assert json.loads(shared("tool", "session_search", '{"query": "violin"}').out)["count"] == 0
    assert "conv3" not in shared("sessions", "export").out
    assert len(shared("sessions", "export", "--user", "kim").out.splitlines()) == 2
    assert shared("sessions", "show", "conv3").code == 2


def test_forgetting_a_user_takes_all_of_theirs(shared):
    """Everything of one user goes, nothing of another's."""
    assert json.loads(shared("forget", "--user", "kim", "--yes", "--json").out)["sessions"] == 1
    assert shared("sessions", "list", "--user", "kim").out == ""
    assert len(json.loads(shared("sessions", "list", "--json").out)) == 2


def test_care_of_the_store(kept):
    """Statistics, reindexing, optimising, pruning and repairing run and say what they did."""
    assert json.loads(kept("sessions", "stats", "--json").out)["messages"] == 4
    assert "4 messages indexed" in kept("sessions", "reindex").out
    assert kept("sessions", "optimize", "--vacuum").code == 0
    assert kept("sessions", "repair").out.strip() == "no problems found"
    assert json.loads(kept("sessions", "prune", "--days", "1", "--dry-run", "--json").out)["text_bytes"] > 0
    assert json.loads(kept("sessions", "prune", "--days", "1", "--yes", "--json").out)["deleted"] == ["conv1", "conv2"]
    assert json.loads(kept("sessions", "prune", "--empty-trash", "--json").out)["removed"]["sessions"] == 2
    assert "no model calls" in kept("usage").err


def test_a_damaged_index_is_reported_and_repaired(kept, home):
    """`kept doctor` names a damaged index, `kept sessions repair` repairs it, and everything is found again."""
    path = home / "state.db"
    with path.open("r+b") as file:
        pages = path.stat().st_size // 4096
        raw = file.read()
        for page in range(pages):
            if (
                b"lgbtq" in raw[page * 4096 : (page + 1) * 4096]
                and b"LGBTQ" not in raw[page * 4096 : (page + 1) * 4096]
            ):
                file.seek(page * 4096)
                file.write(random.Random(1).randbytes(4096))

    said = kept("doctor", "--offline")
    repaired = kept("sessions", "repair")
    after = kept("doctor", "--offline")

    assert said.code == 1
    assert "kept sessions re" in said.out
    assert repaired.code == 0, repaired.out
    assert "done:" in repaired.out
    assert after.code == 0, after.out
    assert "conv1" in kept("sessions", "search", "support group").out


def test_other_profiles_are_read_only(run, transcript, home):
    """`search --profile a,b` looks into other homes without writing to them."""
    for name in ("work", "home-life"):
        assert run("profile", "create", name).code == 0
        assert run("sessions", "import", transcript, "--profile", name).code == 0
    before = {path: path.read_bytes() for path in home.rglob("state.db")}

    ran = run("sessions", "search", "support group", "--profile", "work,home-life")

    assert ran.code == 0
    assert ran.out.count("conv1") == 2
    assert {path: path.read_bytes() for path in before} == before


def test_a_newer_database_is_refused_in_words(kept, home):
    """A database of a newer kept is not opened; the tool says so, and the file is not touched."""
    import sqlite3

    connection = sqlite3.connect(home / "state.db")
    connection.execute("PRAGMA user_version = 999")
    connection.close()
    before = (home / "state.db").read_bytes()

    listed = kept("sessions", "list")
    answer = json.loads(kept("tool", "session_search", "{}").out)

    assert listed.code == 74
    assert answer["success"] is False
    assert answer["error"].startswith("session store unavailable: ")
    assert answer["remedy"]
    assert (home / "state.db").read_bytes() == before


def test_an_empty_answer_says_why(kept):
    """Filters that took the hits away are told apart from words that nobody said."""
    late = kept("sessions", "search", "camelCaseNames", "--after", "2025-01-01")
    assert "the filters (after) excluded 1 hit" in late.err
    assert "nothing matched" in kept("sessions", "search", "zyzzyva").err
    wrong = kept("sessions", "search", "deployment", "--role", "usr")
    assert (wrong.code, "did you mean 'user'" in wrong.err) == (2, True)


def test_profiles_that_hold_nothing_are_no_error(kept):
    """One that is not there is a mistake; one without conversations finds nothing."""
    assert kept("profile", "create", "empty").code == 0

    both = kept("sessions", "search", "camelCaseNames", "--profile", "empty,default")
    assert both.code == 0
    assert "[empty] no conversation" in both.err
    assert "[default]" in both.out
    wrong = kept("sessions", "search", "x", "--profile", "absent")
    assert (wrong.code, "kept profile create absent" in wrong.err) == (2, True)
    assert kept("sessions", "search", "x", "--profile", " , ").code == 2


def test_statistics_name_what_they_count(kept):
    """No column is left to be guessed, and what has no title says so."""
    shown = kept("sessions", "stats").out

    assert "biggest (session, title, messages, bytes of text)" in shown
    assert "None" not in shown


def test_an_export_to_a_file_answers_programs(kept, tmp_path):
    """With --json the report is JSON; without a file the lines are JSON either way."""
    ran = kept("sessions", "export", "-o", str(tmp_path / "all.jsonl"), "--json")

    assert json.loads(ran.out) == {"file": str(tmp_path / "all.jsonl"), "lines": 6}


def test_the_doctor_names_the_repair_of_a_file_that_is_no_database(run, home):
    """It does not send back to itself; the repair puts the bytes aside."""
    home.mkdir()
    (home / "state.db").write_bytes(b"\x00garbage" * 700)

    ran = run("doctor", "--offline")
    assert ran.code == 1
    assert "run `kept sessions repair`" in ran.out
    assert "run `kept doctor`" not in ran.out


def test_a_question_needs_no_quotes(kept):
    """Words that stand alone in the line are one query."""
    assert "conv1" in kept("sessions", "search", "When", "did", "Caroline", "go", "to", "the", "support", "group").out


@pytest.mark.parametrize(
    "command",
    [
        ("sessions", "list"),
        ("sessions", "search", "llama"),
        ("sessions", "show", "a"),
        ("sessions", "scroll", "1"),
        ("sessions", "prune", "--days", "1", "--dry-run"),
        ("sessions", "rename", "a", "named"),
    ],
)
def test_nothing_stored_steers_the_terminal(run, tmp_path, command):
    """Ids and titles come from files of other people as well."""
    line = {
        "session_id": "a\x1b]0;b\x07",
        "role": "user",
        "content": "\x1b[2Jllama",
        "timestamp": 1,
        "title": "\x1b[5m",
    }
    (tmp_path / "esc.jsonl").write_text(json.dumps(line))
    run("sessions", "import", str(tmp_path / "esc.jsonl"))

    ran = run(*command)

    assert ran.code == 0
    assert "\x1b" not in ran.out + ran.err
    assert "\x07" not in ran.out + ran.err


@pytest.fixture
def weeks(run, tmp_path):
    """A home with a conversation of each of the last days and weeks, at noon."""
    noon = datetime.now(UTC).replace(hour=12, minute=0, second=0, microsecond=0)
    monday = noon - timedelta(days=noon.weekday() + 7)
    days = {"lw-tuesday": monday + timedelta(days=1), "lw-friday": monday + timedelta(days=4)}
    days |= {"older": monday - timedelta(days=9), "this": monday + timedelta(days=7, hours=-1)}
    lines = [
        {"session_id": name, "role": "user", "content": f"Topic {name}", "timestamp": day.timestamp()}
        for name, day in days.items()
    ]
    path = tmp_path / "weeks.jsonl"
    path.write_text("\n".join(map(json.dumps, lines)))
    assert run("sessions", "import", str(path)).code == 0
    return run


@pytest.mark.parametrize(
    "question", ["what did we do last week?", "was haben wir letzte Woche gemacht", "上周我们做了什么"]
)
def test_a_question_about_a_time_is_answered_by_the_conversations_of_that_time(weeks, question):
    """Newest first, by day, none of another week; the words of the question need not occur."""
    answer = json.loads(weeks("sessions", "search", question, "--json").out)

    assert [one["session_id"] for one in answer["sessions"]] == ["lw-friday", "lw-tuesday"]
    assert not answer["abstained"]
    assert [[one["first_words"] for one in day["conversations"]] for day in answer["days"]] == [
        ["Topic lw-friday"],
        ["Topic lw-tuesday"],
    ]


def test_a_list_takes_a_time_in_words(weeks):
    """`--after` is open to the present, `--on` is the whole time."""
    after = json.loads(weeks("sessions", "list", "--after", "last week", "--json").out)
    on = json.loads(weeks("sessions", "list", "--on", "letzte Woche", "--json").out)
    both = weeks("sessions", "list", "--on", "yesterday", "--after", "yesterday", "--json")

    assert [one["session_id"] for one in after] == ["this", "lw-friday", "lw-tuesday"]
    assert [one["session_id"] for one in on] == ["lw-friday", "lw-tuesday"]
    assert both.code == 2
    assert "--on cannot be combined" in json.loads(both.out)["error"]


def test_a_search_needs_no_query_when_a_time_is_given(weeks):
    """One line per conversation under its day; without either, the usage says what is missing."""
    shown = weeks("sessions", "search", "--on", "last week").out
    nothing = weeks("sessions", "search", "--json")

    assert [line.split("  ")[-1] for line in shown.splitlines() if line.startswith("  ")] == ["lw-friday", "lw-tuesday"]
    assert nothing.code == 2
    assert "give a query, a time or --batch" in json.loads(nothing.out)["error"]


def test_a_question_is_answered_in_order_of_time(kept):
    """`--sort` gives a time line of the conversations about it, printed and as JSON."""
    shown = kept("sessions", "search", "Caroline OR deployment", "--sort", "newest")
    found = json.loads(kept("sessions", "search", "Caroline OR deployment", "--sort", "oldest", "--json").out)

    assert shown.out.index("conv2") < shown.out.index("conv1")
    assert [one["session_id"] for one in found["timeline"]] == ["conv1", "conv2"]
    assert kept("sessions", "search", "Caroline", "--sort", "best").code == 2


@pytest.mark.parametrize(
    "command",
    [
        ["sessions", "search", "--user", "owner", "walnut"],
        ["sessions", "list", "--user", "owner"],
        ["sessions", "export", "--user", "owner"],
        ["user", "export", "owner"],
        ["forget", "--user", "owner", "--yes"],
    ],
)
def test_who_acts_as_one_user_reaches_no_other_by_an_argument(kept, command):
    """The two names contradict each other; nothing is shown and nothing is removed."""
    kept("user", "create", "mia")
    kept("memory", "add", "the hint is walnut")

    refused = kept("--as", "mia", *command)

    assert refused.code == 2
    assert "walnut" not in refused.out
    assert "contradict" in refused.err
    assert "walnut" in kept("memory", "show").out
