"""The lossless engine: a tree that grows, stays small in view, and opens every original."""

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from wellkept.context.engine import Compaction, Unchanged, Why
from wellkept.context.lossless import FAN, HEADING, Lossless, Node, NodesInMemory, Tree, condensable, matcher, thin
from wellkept.context.summary import MARKER, summary_text
from wellkept.core.errors import ModelBusy, ModelError, StorageError
from wellkept.core.ids import SessionId
from wellkept.core.messages import Message, Role, StoredMessage
from wellkept.core.tools import ToolContext
from wellkept.testing.context_contract import as_stored, check_outcome, context_after, conversation, prepare_engine


@dataclass
class Model:
    answer: str = "- they looked at the parser [#3]\n- and chose tabs"
    failure: ModelError | None = None
    fails_after: int = 0
    name: str = "test/leaf"
    context_length: int = 50_000
    calls: int = 0

    def complete(self, system: str, prompt: str, *, max_output_tokens: int) -> str:
        self.calls += 1
        if self.failure is not None and self.calls > self.fails_after:
            raise self.failure
        return self.answer


def engine_for(rows: list[StoredMessage], model: Model | None = None) -> Lossless:
    engine = prepare_engine(Lossless(), rows)
    assert isinstance(engine, Lossless)
    engine.setup = replace(engine.setup, model=model)
    return engine


def test_every_covered_message_is_in_the_tree() -> None:
    """Leaves cover what left the window, each message once."""
    rows = conversation(60)
    engine = engine_for(rows)

    outcome = engine.compress(rows)

    assert isinstance(outcome, Compaction)
    leaves = [child for node in engine.tree().nodes.values() if node.depth == 0 for child in node.children]
    assert sorted(leaves) == sorted(outcome.covered)
    assert HEADING in outcome.summary.text
    assert outcome.summary.text.startswith(MARKER)


def test_the_tree_grows_over_many_compactions_and_the_view_stays_small() -> None:
    """Old nodes are condensed; the context ends below the threshold each time; nothing leaves the tree."""
    everything = [replace(row, id=row.id * 2) for row in conversation(500, words=40)]
    engine = engine_for(everything)
    rows: list[StoredMessage] = []
    covered: set[int] = set()
    for row in everything:
        rows.append(row)
        if engine.should_compress_preflight(rows):
            outcome = engine.compress(rows)
            assert isinstance(outcome, Compaction)
            check_outcome(engine, rows, outcome)
            assert outcome.tokens_after < engine.limits.threshold
            covered |= {one for one in outcome.covered if one % 2 == 0}
            rows = context_after(rows, outcome)

    tree = engine.tree()
    assert len(covered) > 1_500
    assert tree.covered() == covered
    assert max(node.depth for node in tree.nodes.values()) >= 2
    assert {one for root in tree.roots for one in tree.messages(root)} == covered


def test_the_model_writes_leaves_with_checked_ids() -> None:
    """Its lines go into the nodes; ids it was not shown go."""
    rows = conversation(60)
    engine = engine_for(rows, Model("- the parser [#3]\n- nothing [#99999]"))

    engine.compress(rows)

    text = next(iter(engine.tree().nodes.values())).text
    assert "- the parser [#3]" in text
    assert "99999" not in text


def test_an_outage_changes_nothing_and_what_was_written_is_used_later() -> None:
    """Leaves that were made before the failure are not made again."""
    rows = conversation(30, words=50)
    model = Model(failure=ModelBusy("down"), fails_after=2)
    engine = engine_for(rows, model)

    first = engine.compress(rows, force=True)
    made = dict(engine.tree().nodes)
    model.failure = None
    second = engine.compress(rows, force=True)

    assert isinstance(first, Unchanged)
    assert first.reason is Why.MODEL_UNREACHABLE
    assert len(made) == 2
    assert isinstance(second, Compaction)
    assert made.items() <= engine.tree().nodes.items()
    assert engine.tree().covered() == set(second.covered)


def test_a_summary_of_another_engine_is_taken_over() -> None:
    """A change of engine loses no line of the record."""
    old = Message(Role.USER, summary_text("## Goal\n- the secret plan is plan B [#7]", covered=()))
    rows = [*as_stored([old], first_id=1), *(replace(row, id=row.id + 10) for row in conversation(60))]
    engine = engine_for(rows)

    engine.compress(rows)

    assert any("plan B [#7]" in node.text for node in engine.tree().nodes.values())


def test_a_store_that_refuses_does_not_stop_the_compaction() -> None:
    """The tree continues in memory, and lines of the table so far are taken over."""

    class Full(NodesInMemory):
        def add_node(self, session_id, *, depth, text, children) -> int:
            raise StorageError("disk full")

    old = Message(Role.USER, summary_text(f"{HEADING}\n### node 1\n- the plan is plan B [#7]", covered=()))
    rows = [*as_stored([old], first_id=1), *(replace(row, id=row.id + 10) for row in conversation(60))]
    engine = engine_for(rows)
    engine.setup = replace(engine.setup, nodes=Full())

    outcome = engine.compress(rows)

    assert isinstance(outcome, Compaction)
    assert any("plan B [#7]" in node.text for node in engine.tree().nodes.values())
    assert engine.tree().covered() == set(outcome.covered)


def test_grep_finds_what_left_the_window_and_expand_opens_it() -> None:
    """A match names message and node; the original comes back byte for byte."""
    rows = conversation(60)
    needle = replace(rows[20], message=replace(rows[20].message, content="the port is 8 471, see Zürich\n\n\tend"))
    rows[20] = needle
    engine = engine_for(rows)
    engine.compress(rows)
    tools = {tool.schema.name: tool for tool in engine.tools()}

    found = tools["context_grep"].call({"pattern": "port .* zürich"}, ToolContext())
    opened = tools["context_expand"].call({"message_ids": [needle.id]}, ToolContext())

    assert found["count"] == 1
    assert found["matches"][0]["message_id"] == needle.id
    assert found["matches"][0]["node_id"] in engine.tree().nodes
    assert opened["messages"][0]["content"] == needle.message.text
    assert "next" not in opened


def test_a_node_opens_within_the_budget_and_continues_where_it_stopped() -> None:
    """Read on by `next`, the parts are the whole."""
    rows = conversation(60)
    engine = engine_for(rows)
    engine.compress(rows)
    expand = next(tool for tool in engine.tools() if tool.schema.name == "context_expand")
    leaf = next(node for node in engine.tree().nodes.values() if node.depth == 0)
    texts: dict[int, str] = {}
    more: dict = {}
    for _ in range(200):
        answer = expand.call({"node_id": leaf.id, "max_tokens": 100, **more}, ToolContext())
        assert sum(len(one["content"]) for one in answer["messages"]) <= 450
        for one in answer["messages"]:
            texts[one["id"]] = texts.get(one["id"], "") + one["content"]
        more = answer.get("next", {})
        if not more:
            break

    by_id = {row.id: row for row in rows}
    assert list(texts) == list(leaf.children)
    assert all(by_id[one].message.text in text for one, text in texts.items())


def test_describe_lists_the_tree_and_one_node() -> None:
    """Roots first, then the children of one."""
    rows = conversation(60)
    engine = engine_for(rows)
    engine.compress(rows)
    describe = next(tool for tool in engine.tools() if tool.schema.name == "context_describe")

    top = describe.call({}, ToolContext())
    root = top["nodes"][0]["node_id"]

    assert describe.call({"node_id": root}, ToolContext())["children"]
    assert describe.call({"node_id": 999}, ToolContext())["success"] is False


def test_conversations_do_not_see_each_other() -> None:
    """Another session has its own tree."""
    rows = conversation(60)
    engine = engine_for(rows)
    engine.compress(rows)

    engine.on_session_start(SessionId("another"))

    assert engine.tree().nodes == {}


def test_the_oldest_run_of_one_depth_is_condensed_first() -> None:
    """At most six at a time; without a run, the two oldest."""
    roots = [Node(1, 2, "", ()), *(Node(place, 0, "", ()) for place in range(2, 12))]

    assert [node.id for node in condensable(roots)] == list(range(2, 2 + FAN))
    assert [node.id for node in condensable([Node(1, 2, "", ()), Node(2, 1, "", ())])] == [1, 2]


def test_a_broken_tree_is_read_without_end() -> None:
    """Children that are missing or in a circle do not hang the reader."""
    tree = Tree([(1, 1, "a", (2, 9)), (2, 1, "b", (1,)), (3, 0, "c", (5,))])

    assert tree.messages(tree.nodes[1]) == []
    assert [node.id for node in tree.roots] == [3]


@given(st.lists(st.text(min_size=1, max_size=20), max_size=30), st.integers(0, 200))
def test_thinning_keeps_order_and_budget(lines: list[str], budget: int) -> None:
    """What stays is a part of what was, in order, and fits."""
    kept = thin(lines, budget, count=len)
    rest = iter(lines)

    assert all(line in rest for line in kept)
    assert sum(map(len, kept)) <= budget


@given(st.text(min_size=1, max_size=60))
def test_any_pattern_is_a_search(pattern: str) -> None:
    """No pattern of a model breaks or hangs the search."""
    matcher(pattern).search("a" * 2_000)
