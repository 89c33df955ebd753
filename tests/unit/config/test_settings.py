"""Settings: their shape, where each value came from, and edits that keep the comments."""

import contextlib
from functools import partial
from typing import Annotated, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct, field

from wellkept.config import settings
from wellkept.config.home import Home
from wellkept.config.settings import Settings, find_guard_of, known_keys, load, nearest
from wellkept.core.errors import ConfigError, NotAllowed, Unreadable, UsageError
from wellkept.core.settings import Above, Between, InvalidSetting, accepts, build, describe

COMMENTED = """\
# the head of the file

memory:            # curated memory
  # how long the pages are
  memory_char_limit: 3000   # a bit more
  overflow: 'archive'

# the end
"""

set_value = partial(settings.set_value, why_no_person="")
unset_value = partial(settings.unset_value, why_no_person="")


@pytest.fixture
def home(tmp_path):
    return Home(tmp_path)


def write(home, text):
    home.config_file.write_bytes(text if isinstance(text, bytes) else text.encode())


def test_defaults_hold_without_a_file(home):
    """Nothing written, nothing warned, every value its default."""
    loaded = load(home, {})

    assert loaded.settings == Settings()
    assert (loaded.origins, loaded.warnings) == ({}, ())
    assert (loaded.settings.memory.memory_char_limit, loaded.settings.memory.user_char_limit) == (2200, 1375)


def test_each_value_says_where_it_came_from(home):
    """The file gives line numbers, the environment wins and gives its name."""
    write(home, COMMENTED)
    loaded = load(home, {"KEPT_MEMORY__OVERFLOW": "refuse", "KEPT_HOME": "/x"})

    assert loaded.settings.memory.memory_char_limit == 3000
    assert loaded.settings.memory.overflow == "refuse"
    assert loaded.origins["memory.memory_char_limit"] == "config.yaml:5"
    assert loaded.origins["memory.overflow"] == "KEPT_MEMORY__OVERFLOW"
    assert loaded.warnings == ()


def test_unknown_keys_are_warned_with_the_nearest_name(home):
    """A typing error is no reason to stop, and no reason to be silent."""
    write(home, "memory:\n  memory_char_limt: 5\nmemry: {}\n")
    loaded = load(home, {"KEPT_MEMORY__OVERFLO": "archive"})

    assert len(loaded.warnings) == 3
    assert "config.yaml:2" in loaded.warnings[0]
    assert "'memory_char_limit'" in loaded.warnings[0]
    assert "'memory'" in loaded.warnings[1]
    assert "KEPT_MEMORY__OVERFLOW" in loaded.warnings[2]


@pytest.mark.parametrize(
    ("text", "line", "accepted_words"),
    [
        ("memory:\n  overflow: sometimes\n", 2, "curate | refuse | archive"),
        ("memory:\n\n  memory_char_limit: 0\n", 3, "a whole number, greater than 0"),
        ("memory:\n  memory_char_limit: lots\n", 2, "a whole number"),
        ("memory:\n  memory_enabled: 1\n", 2, "true | false"),
        ("memory: 5\n", 1, "a block of settings"),
        ("memory:\n  pending_days: true\n", 2, "a whole number, at least 1"),
        ("memory:\n  lock_timeout_seconds: .nan\n", 2, "greater than 0"),
    ],
)
def test_a_wrong_value_names_file_line_and_what_is_accepted(home, text, line, accepted_words):
    """A configuration mistake can be fixed from its message alone."""
    write(home, text)
    with pytest.raises(ConfigError) as caught:
        load(home, {})

    assert f"{home.config_file}:{line}:" in caught.value.message
    assert accepted_words in caught.value.remedy


def test_a_wrong_variable_is_named(home):
    """The environment has no lines, but names."""
    with pytest.raises(ConfigError, match="KEPT_MEMORY__MEMORY_CHAR_LIMIT"):
        load(home, {"KEPT_MEMORY__MEMORY_CHAR_LIMIT": "-1"})


@pytest.mark.parametrize(
    "text",
    [
        "memory: [",
        "\tx: 1",
        "a: b: c",
        "memory:\n  overflow: a\n  overflow: b\n",
        "- a\n- b\n",
        "just words",
        "%",
        "[" * 400,
    ],
)
def test_a_file_that_is_no_settings_file_is_an_error_with_its_place(home, text):
    """YAML's complaints become ours, with the file's name."""
    write(home, text)
    with pytest.raises(ConfigError, match=r"config\.yaml"):
        load(home, {})


def test_a_file_that_is_no_text_is_unreadable(home):
    """Bytes that are not UTF-8 are never taken for an empty file."""
    write(home, b"memory:\n  provider: caf\xe9\n")
    with pytest.raises(Unreadable, match="UTF-8"):
        load(home, {})


@pytest.mark.parametrize(
    "text", ["", "\n\n", "# only a comment\n", "memory:\n", "memory: {}\n", "\ufeffmemory:\n  overflow: archive\n"]
)
def test_empty_and_nearly_empty_files_are_fine(home, text):
    """A section without settings is not a mistake."""
    write(home, text)

    assert load(home, {}).warnings == ()


def test_merged_sections_work(home):
    """A YAML merge has no line of its own, and is read all the same."""
    write(home, "memory: &m\n  overflow: archive\n  <<: {memory_char_limit: 50}\n")

    assert load(home, {}).settings.memory.memory_char_limit == 50


@given(
    st.text(max_size=60)
    | st.from_regex(r"(memory|x):\n  [a-z_]{1,12}: [\[\]{}&*!|>'\"%@`0-9a-z.:# -]{0,12}\n", fullmatch=True)
)
def test_no_file_raises_anything_else(tmp_path_factory, text):
    """Any text is settings, or one of our errors."""
    home = Home(tmp_path_factory.mktemp("config"))
    write(home, text.encode("utf-8", "surrogatepass"))
    with contextlib.suppress(ConfigError, Unreadable):
        load(home, {})


def test_comments_and_order_survive_a_change(home):
    """Only the one value differs afterwards."""
    write(home, COMMENTED)
    set_value(home, "memory.memory_char_limit", "4000")

    assert home.config_file.read_text() == COMMENTED.replace("3000", "4000")


def test_a_file_from_windows_keeps_its_line_ends(home):
    """Every line ends as the lines before it, comments too; what was added goes without a trace."""
    before = COMMENTED.replace("\n", "\r\n").encode()
    home.config_file.write_bytes(before)

    set_value(home, "memory.user_char_limit", "99")
    changed = home.config_file.read_bytes()
    unset_value(home, "memory.user_char_limit")

    assert changed.count(b"\r\n") == changed.count(b"\n") == changed.count(b"\r") == before.count(b"\n") + 1
    assert home.config_file.read_bytes() == before


def test_a_section_is_told_from_a_setting(home):
    """Who names a section is shown a setting in it."""
    with pytest.raises(UsageError, match="section") as told:
        set_value(home, "memory", "archive")
    assert "memory.memory_enabled" in told.value.remedy


def test_comments_survive_a_new_key_and_its_removal(home):
    """Set and unset leaves the file as it was."""
    write(home, COMMENTED)
    set_value(home, "memory.user_char_limit", "99")
    text = home.config_file.read_text()
    assert all(comment in text for comment in ("# the head", "# curated", "# how long", "# a bit more", "# the end"))
    assert load(home, {}).settings.memory.user_char_limit == 99

    assert unset_value(home, "memory.user_char_limit")
    assert not unset_value(home, "memory.user_char_limit")
    assert load(home, {}).settings.memory.user_char_limit == 1375


def test_a_comment_on_the_next_key_survives_the_removal(home):
    """What stands between two settings belongs to whoever wrote it."""
    write(home, "memory:\n  provider:\n  - a\n  - b\n\n  # how to overflow\n  overflow: archive\n")
    unset_value(home, "memory.provider")
    assert home.config_file.read_text() == "memory:\n\n  # how to overflow\n  overflow: archive\n"


@pytest.mark.parametrize(
    "text",
    ["memory: {overflow: archive, user_char_limit: 5}\n", "memory:\n  {overflow: archive,\n   user_char_limit: 5}\n"],
)
def test_a_setting_in_braces_is_removed_too(home, text):
    """Where a setting has no lines of its own, the file is rewritten."""
    write(home, text)
    assert unset_value(home, "memory.overflow")
    assert load(home, {}).settings.memory.overflow == "curate"
    assert load(home, {}).settings.memory.user_char_limit == 5


@pytest.mark.parametrize(
    "text", ["# only comments\n# here\n", "memory:\n  # nothing yet\n", "# head\nmemory:\n  overflow: archive # why\n"]
)
def test_comments_survive_where_there_is_little_else(home, text):
    """A file of comments keeps them when the first setting comes, and when the last one goes."""
    write(home, text)
    set_value(home, "memory.overflow", "refuse")
    after_set = home.config_file.read_text()
    unset_value(home, "memory.overflow")
    after_unset = home.config_file.read_text()

    for comment in ("# only comments", "# here", "# nothing yet", "# head"):
        if comment in text:
            assert comment in after_set, after_set
            assert comment in after_unset, after_unset


def test_the_first_setting_makes_the_file(home):
    """Private, and readable again."""
    set_value(home, "memory.overflow", "archive")

    assert home.config_file.read_text() == "memory:\n  overflow: archive\n"
    assert home.config_file.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("memory.overflow", "x"),
        ("memory.memory_char_limit", "0"),
        ("memory.memory_char_limit", "1.5"),
        ("memory.provider", '"\\ud800"'),
        ("toolsets", "[memroy]"),
        ("platforms.cli.toolsets", "everything"),
    ],
)
def test_a_value_that_is_not_accepted_changes_nothing(home, key, text):
    """The file stays byte for byte."""
    write(home, COMMENTED)
    with pytest.raises(ConfigError, match="accepted"):
        set_value(home, key, text)
    assert home.config_file.read_text() == COMMENTED


def test_an_unknown_key_names_the_nearest(home):
    """`kept config set` never writes what nobody reads."""
    with pytest.raises(UsageError, match=r"memory\.overflow"):
        set_value(home, "memory.overflw", "archive")
    assert not home.config_file.exists()


@pytest.mark.parametrize(
    ("key", "text", "value"),
    [
        ("memory.memory_enabled", "False", False),
        ("memory.memory_enabled", "no", False),
        ("memory.provider", "12", "12"),
        ("memory.provider", "none", None),
        ("memory.provider", '["a", "b"]', ["a", "b"]),
        ("memory.write_approval", "off", "off"),
        ("memory.lock_timeout_seconds", "2", 2),
        ("toolsets", "[memory, todo]", ["memory", "todo"]),
        ("toolsets", "memory, todo", ["memory", "todo"]),
        ("platforms.cli.toolsets", "[memory]", ["memory"]),
        ("mcp_servers.files.args", "[-m, server]", ["-m", "server"]),
    ],
)
def test_values_are_read_as_their_setting_takes_them(home, key, text, value):
    """A person types words; the setting decides what they mean."""
    assert set_value(home, key, text) == value
    load(home, {})


def test_another_agent_s_limits_are_shared_and_its_mistakes_are_its_own(home, tmp_path):
    """In a shared home its memory settings count, unless ours say otherwise."""
    (tmp_path / "kept.yaml").write_text("memory:\n  user_char_limit: 10\n")
    (tmp_path / "config.yaml").write_text(
        "memory:\n  memory_char_limit: 777\n  user_char_limit: 5\n  memory_enabled: perhaps\nx: [\n"
    )
    assert load(home, {}).settings.memory.memory_char_limit == 2200

    (tmp_path / "config.yaml").write_text(
        "memory:\n  memory_char_limit: 777\n  user_char_limit: 5\n  memory_enabled: perhaps\n"
    )
    loaded = load(home, {})
    assert (loaded.settings.memory.memory_char_limit, loaded.settings.memory.user_char_limit) == (777, 10)
    assert loaded.origins["memory.memory_char_limit"] == "config.yaml:2"


class Inner(Struct, frozen=True, kw_only=True):
    ratio: Annotated[float, Between(0, 1)] = 0.5
    names: list[str] = field(default_factory=list)
    table: dict[str, int] = field(default_factory=dict)
    mode: Literal["a", "b"] | None = None


class Outer(Struct, frozen=True, kw_only=True):
    inner: Inner = field(default_factory=Inner)
    count: Annotated[int, Above(0)] = 1


def test_the_shape_is_read_off_the_dataclasses():
    """Keys are dotted, values are checked by their annotations, whole numbers may stand for fractions."""
    assert list(known_keys(Outer)) == ["inner.ratio", "inner.names", "inner.table", "inner.mode", "count"]
    assert build(Outer, {"inner": {"ratio": 1, "names": ["x"]}, "count": 2}) == Outer(
        inner=Inner(ratio=1.0, names=["x"]), count=2
    )


@pytest.mark.parametrize(
    "values",
    [
        {"inner": {"ratio": 2}},
        {"inner": {"names": "x"}},
        {"inner": {"names": [1]}},
        {"inner": {"table": {"a": "b"}}},
        {"inner": {"mode": "c"}},
        {"count": 0},
        {"count": True},
        {"inner": []},
    ],
)
def test_what_does_not_fit_is_unfit(values):
    """The complaint carries what would be accepted."""
    with pytest.raises(InvalidSetting) as caught:
        build(Outer, values)
    assert caught.value.accepted


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
        lambda v: st.lists(v) | st.dictionaries(st.text(), v),
        max_leaves=5,
    )
)
def test_no_value_breaks_the_check(value):
    """Any value either fits an annotation or does not."""
    for annotation in (
        int,
        float,
        str,
        bool,
        list[str],
        dict[str, int],
        Literal["a"] | None,
        Annotated[float, Above(0)],
    ):
        assert accepts(annotation, value) in {True, False}
        assert describe(annotation)


def test_the_nearest_name():
    """A hint only where something is near."""
    assert nearest("overflw", ["overflow", "x"]) == "; did you mean 'overflow'?"
    assert nearest("zzz", ["overflow"]) == ""


@pytest.mark.parametrize(
    ("key", "before", "after", "is_refused"),
    [
        ("approvals", "", "auto", True),
        ("approvals", "", "deny", False),
        ("approvals", "auto", "ask", False),
        ("memory.untrusted", "", "allow", True),
        ("memory.untrusted", "allow", "hold", False),
        ("decisions", "person", "scripts", True),
        ("disabled_plugins", '["a"]', "[]", True),
        ("disabled_plugins", '["a"]', '["a", "b"]', False),
        ("mcp_servers.files.command", "", "server", True),
        ("serve.hosts", "", '["memory.example"]', True),
        ("model.base_url", "", "http://127.0.0.1:1/v1", True),
        ("sessions.redact", "", "false", True),
        ("display.memory_notifications", "", "off", True),
        ("display.memory_notifications", "", "verbose", False),
        ("auxiliary.review.model", "", "scripted/script.json", True),
        ("model.prices", "", '{"openai/x": {"input": 0}}', True),
        ("memory.overflow", "", "archive", True),
        ("memory.memory_enabled", "", "false", True),
        ("memory.pending_days", "", "1", True),
        ("sessions.durability", "full", "normal", True),
        ("review.enabled", "false", "true", True),
        ("curator.enabled", "false", "true", True),
        ("curator.enabled", "", "false", False),
        ("serve.requests_per_minute", "", "1000000", True),
        ("compression.threshold", "", "0.4", False),
    ],
)
def test_an_agent_cannot_make_a_setting_protect_less(tmp_path, key, before, after, is_refused):
    """Without a person, a guarded setting can be changed only to a value that protects as much or more."""
    home = Home(tmp_path)
    if before:
        set_value(home, key, before)
    written = home.config_file.read_bytes() if before else b""
    with pytest.raises(NotAllowed, match="only a person") if is_refused else contextlib.nullcontext():
        set_value(home, key, after, why_no_person="an agent asked")

    is_same = home.config_file.read_bytes() == written if home.config_file.exists() else not before
    assert is_same is is_refused


def test_an_agent_cannot_remove_a_setting_that_protects(tmp_path):
    """The default may protect less than what the person had set."""
    home = Home(tmp_path)
    set_value(home, "approvals", "deny")
    with pytest.raises(NotAllowed):
        unset_value(home, "approvals", why_no_person="an agent asked")

    assert load(home, {}).settings.approvals == "deny"


def test_a_variable_of_an_agent_does_not_loosen_a_setting(tmp_path):
    """A process that an agent started ignores variables that protect less, but not those of the person's `.env`."""
    home = Home(tmp_path)
    of_agent = {"KEPT_AGENT": "1", "KEPT_MEMORY__UNTRUSTED": "allow", "KEPT_SERVE__RESET": "daily"}
    of_agent |= {"KEPT_CONNECT__EXCLUDE": "[]"}
    home.config_file.write_text("connect: {exclude: ['*/secret/*']}\n")
    ignored = load(home, of_agent)
    home.env_file.write_text('KEPT_MEMORY__UNTRUSTED="allow"\n')

    assert (ignored.settings.memory.untrusted, ignored.settings.serve.reset) == ("hold", "daily")
    assert ignored.settings.connect.exclude == ["*/secret/*"]
    assert all("only a person" in warning for warning in ignored.warnings)
    assert load(home, of_agent).settings.memory.untrusted == "allow"
    assert load(home, {"KEPT_MEMORY__UNTRUSTED": "mark"}).settings.memory.untrusted == "mark"


UNGUARDED = {
    "memory": (
        "check_project memory_char_limit user_char_limit project_pages project_char_limit read_action delta_notice "
        "lock_timeout_seconds nudge_interval"
    ),
    "sessions": "answer_tokens",
    "sessions.embeddings": "dimensions batch timeout query_timeout background",
    "skills": (
        "enabled bundled catalogue_tokens similar_threshold flag_min_uses creation_nudge_interval "
        "pinned_by_schedule hub_timeout_seconds lock_timeout_seconds"
    ),
    "curator": "interval_days idle_hours stale_days archive_days",
    "providers": (
        "prefetch_timeout_seconds start_timeout_seconds tool_timeout_seconds delivery_timeout_seconds "
        "switch_wait_seconds recall_max_chars breaker_failures breaker_pause_seconds"
    ),
    "model": "context_length max_output_tokens temperature timeout retries retry_after_limit",
    "auxiliary.compression": "timeout",
    "auxiliary.review": "timeout",
    "auxiliary.title": "timeout",
    "auxiliary.search_summary": "timeout",
    "prompt_caching": "enabled cache_ttl",
    "compression": "enabled threshold target_ratio protect_last_n protect_first_n in_place",
    "connect": "sessions passages start_seconds prompt_seconds stop_seconds",
    "serve": "port drain_seconds idle_minutes reset reset_idle_minutes reset_hour",
    "serve.proxy": "wait_milliseconds",
    "storage": "connections",
    "limits": "tool_seconds",
    "review": "exit_wait_seconds",
}
"""Settings that protect nobody, by section: an agent may change them for the person."""


def test_every_setting_is_guarded_or_known_as_harmless():
    """A new setting is guarded, or it is entered above with care."""
    harmless = {f"{section}.{name}" for section, names in UNGUARDED.items() for name in names.split()}

    assert {key for key in known_keys() if find_guard_of(key) is None} == harmless
