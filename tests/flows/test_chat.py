"""`kept chat` from a pipe, with nothing configured."""

from wellkept.core.messages import Usage
from wellkept.llm.scripted import Says, call
from wellkept.testing.loopback_servers import LoopbackAnthropic, LoopbackOpenAI


def test_a_first_chat_keeps_and_answers(kept):
    """A new user tells it something, asks for it, and sees where it came from."""
    ran = kept("chat", stdin="Remember that I deploy on Fridays\nWhen do I deploy?\n/memory\n/help\n/quit\n")

    assert ran.code == 0, ran.err
    assert "Saved to USER.md: I deploy on Fridays" in ran.out
    assert "I deploy on Fridays\n  — USER.md" in ran.out
    assert "/quit" in ran.out
    assert "No model is connected" in ran.err


def test_the_next_chat_finds_the_last_one(kept):
    """What was said in passing is found by a plain question, with date and id."""
    kept("chat", stdin="The caterer for the wedding is Chez Louise in Lyon\n")

    ran = kept("chat", stdin="Who is the caterer for the wedding?\n/search caterer\n")

    assert "Chez Louise" in ran.out
    assert "session " in ran.out


def test_slash_commands_work_without_a_model(kept):
    """New, title, undo, status and a typing error."""
    ran = kept("chat", stdin="hello there\n/title Greetings\n/undo\n/new\n/status\n/resum\n/usage\n/resume\n")

    assert "Title: Greetings" in ran.out
    assert "Undone: hello there" in ran.out
    assert "A new conversation." in ran.out
    assert "did you mean /resume?" in ran.err


def test_a_chat_with_a_model_streams_and_tells_what_was_saved(kept):
    """The answer is on stdout; tools and saved entries are shown with it, with the command that undoes them."""
    script = [
        Says("Noted.", tool_calls=(call("memory", action="add", target="user", content="User likes tea"),)),
        "Done.",
    ]
    with LoopbackOpenAI(script) as endpoint:
        ran = kept(
            "chat", "--model", "openai/loopback-model", stdin="I like tea, keep that\n", env=endpoint.environment
        )

    assert ran.code == 0, ran.err
    assert "Done." in ran.out
    assert "saved to user: User likes tea (undo: kept memory undo 1)" in ran.err


def test_a_resumed_chat_continues(kept):
    """--continue takes up the newest session."""
    with LoopbackOpenAI(["first", "second"]) as endpoint:
        env = endpoint.environment
        kept("chat", "--model", "openai/loopback-model", stdin="one\n", env=env)
        kept("chat", "--continue", "--model", "openai/loopback-model", stdin="two\n", env=env)
        texts = [str(message["content"]) for message in endpoint.requests[-1].body["messages"]]

    assert any("one" in text for text in texts)
    assert any("first" in text for text in texts)


def test_a_session_is_named_alike_everywhere(kept):
    """By its id, the beginning of its id, or its title: to continue with it, and to bring it back from the trash."""
    kept("chat", stdin="The kestrel server has port 4711\n/title Falcon talk\n")
    session = kept("sessions", "list").out.split()[0]

    for name in (session, session[:12], "Falcon talk"):
        assert kept("run", "--resume", name, "Which port has the kestrel server?").code == 0
        assert f"Resumed {session}" in kept("chat", stdin=f"/resume {name}\n").out
        assert kept("sessions", "delete", session, "--yes").code == 0
        assert kept("sessions", "restore", name).code == 0
    wrong = kept("sessions", "restore", "Sparrow talk")
    assert (wrong.code, "kept sessions list --trash" in wrong.err) == (2, True)
    wrong = kept("chat", "--resume", session, "--incognito", stdin="")
    assert (wrong.code, "omit --incognito" in wrong.err) == (2, True)


def test_a_forgotten_conversation_is_gone_from_answers_that_quoted_it(kept, home):
    """Quotations of it, or of an entry that it added, in other conversations are erased from the disk."""
    kept("chat", stdin="The xylophone is up in the attic\nRemember that my codeword is marimba42\n")
    session = kept("sessions", "list").out.split()[0]
    asked = kept("chat", stdin="Where is the xylophone?\nWhat is my codeword?\nHow are you today?\n")
    assert "up in the attic" in asked.out
    assert "marimba42" in asked.out

    assert kept("forget", "--session", session, "--yes").code == 0
    shown = kept("sessions", "export").out
    assert "Where is the xylophone?" in shown
    assert shown.count("[forgotten]") == 2
    for words in (b"up in the attic", b"marimba42"):
        assert not [path for path in home.rglob("*") if path.is_file() and words in path.read_bytes()]


def test_a_page_that_cannot_be_read_is_reported_at_the_start(kept, home):
    """The other page is shown and used; slash commands report the page that cannot be read."""
    kept("chat", stdin="Remember that I deploy on Fridays\n")
    (home / "memories" / "MEMORY.md").write_bytes(b"caf\xe9")

    ran = kept("chat", "--incognito", stdin="/memory\n/memory pending\n/memory shwo\n")
    assert "continuing without MEMORY.md" in ran.err.split(">", maxsplit=1)[0]
    assert "Incognito: this conversation is not stored" in ran.err
    assert "§ I deploy on Fridays" in ran.out
    assert "Nothing is pending." in ran.out
    assert "there is no /memory shwo" in ran.err


def test_a_chat_continues_when_nothing_can_be_stored(kept, home):
    """A database that cannot be opened is reported at the start; memory still works."""
    home.mkdir()
    (home / "state.db").mkdir()

    ran = kept("chat", stdin="Remember that I deploy on Fridays\nWhen do I deploy?\n")

    assert ran.code == 0
    assert "not being stored" in ran.err
    assert "I deploy on Fridays\n  — USER.md" in ran.out


def test_slash_commands_with_a_model(kept):
    """A chat without a model takes one up, names itself, and tells tokens and money."""
    priced = Says("hello", usage=Usage(1_000, 500, 400, 100))
    with LoopbackAnthropic([priced, priced]) as server:
        lines = ["hi", "/model anthropic/claude-sonnet-5.5", "two", "/title My talk", "/title", "/usage", "/status"]

        ran = kept("chat", "--model", "extractive", stdin="\n".join(lines), env=server.environment)

    assert len(server.requests) == 1
    assert "> /title\nMy talk\n" in ran.out
    assert "sent 1,500 tokens (400 from cache, 100 written to it), received 500; $0.0" in ran.out
    assert "26 % from cache · $0.0" in ran.out


def test_a_title_needs_no_spaces(kept):
    """A long message in a script without spaces gives its beginning as the title."""
    kept("chat", stdin="数据库" * 40)

    assert "数据库数据库" in kept("sessions", "list").out
    assert kept("sessions", "list", "--json").json[0]["title"] == "数据库" * 20 + "…"


def test_what_was_said_a_minute_ago_is_found(kept):
    """A question is answered from the conversation it is asked in, in any language; the question is not an answer."""
    ran = kept(
        "chat",
        stdin="The staging database runs on heron, port 5433.\nWhich port does the staging database use?\n"
        "数据库运行在苍鹭上，端口5433。\n数据库在哪个端口？\n",
    )

    assert "use?\nThe staging database runs on heron, port 5433.\n  — you, " in ran.out
    assert "哪个端口？\n数据库运行在苍鹭上，端口5433。\n  — you, " in ran.out


def test_an_incognito_chat_does_not_say_that_it_keeps(kept):
    """In an incognito conversation the assistant does not claim to keep what it is told."""
    ran = kept("chat", "--incognito", stdin="The staging database runs on heron.\n")

    assert "incognito: I keep nothing" in ran.out
    assert "I keep this conversation" not in ran.out


def test_words_are_kept_verbatim_in_any_locale(kept_process, home):
    """What comes through a pipe is UTF-8, also where the locale knows only ASCII; other bytes are named and left out."""
    ascii_only = {"LC_ALL": "POSIX", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}

    ran = kept_process("chat", env=ascii_only, stdin="记住我喜欢茶\n".encode() + b"caf\xe9\n")

    assert ran.code == 0, ran.err
    assert (home / "memories" / "USER.md").read_text(encoding="utf-8") == "我喜欢茶"
    assert "line 2 is not UTF-8 text" in ran.err
