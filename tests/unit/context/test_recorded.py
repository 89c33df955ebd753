"""Recorded behaviour: the same conversations give the same cuts, summaries, prompts and answers, byte for byte.

The prompt cache of a provider holds only while the bytes stay the same, so every change here must be deliberate:
`RECORD_BEHAVIOUR=1 pytest tests/unit/context/test_recorded.py` rewrites `recorded.json`, and its diff shows the change.
"""

import json
import os
import random
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from msgspec.structs import replace

from wellkept.context.boundaries import (
    Backoff,
    Limits,
    Window,
    head_length,
    limits,
    load_backoff,
    measure,
    needs_hygiene,
    plan_cut,
    summary_budget,
    tail_start,
)
from wellkept.context.engine import Compaction, ContextEngine, Pruned, Setup, Unchanged, Why
from wellkept.context.lossless import Lossless, Node, Tree, condensable, thin, write_condensed, write_leaf
from wellkept.context.messages import faults, groups, prune, prune_as_marked, repair, request_messages
from wellkept.context.settings import CompressionSettings
from wellkept.context.summarising import Compressor
from wellkept.context.summary import (
    Brief,
    Unreachable,
    clip,
    extract_sections,
    find_citations,
    fit_sections,
    gist,
    index_sources,
    line_of,
    merge_sections,
    parse_sections,
    render_sections,
    shorten,
    split_transcript,
    summary_text,
    write_summary,
)
from wellkept.core.clock import FixedClock
from wellkept.core.errors import ContextOverflow, ModelBusy, ModelError, ModelRefused
from wellkept.core.ids import MessageId, SessionId
from wellkept.core.messages import ImagePart, Message, Role, TextPart, ToolCall, Usage
from wellkept.core.tools import ToolContext
from wellkept.core.values import asdict
from wellkept.testing.context_contract import as_stored, conversation, count_by_length, prepare_engine

RECORD = Path(__file__).with_name("recorded.json")
GOOD = (
    "<thinking>hm</thinking>## Goal\n- the parser [#1]\n## Constraints & Preferences\n* tabs\n"
    "## Progress\n### Done\n1. wrote lexer.py [#5, #9999]\n## Next Steps\n- more of the grammar [#9]\n"
)


@dataclass
class Model:
    """A summary model that gives its answers in turn, the last one for ever, and keeps what it was asked."""

    answers: list[str | ModelError] = field(default_factory=lambda: [GOOD])
    name: str = "test/summary"
    context_length: int = 20_000
    asked: list[tuple[str, int]] = field(default_factory=list)

    def complete(self, system: str, prompt: str, *, max_output_tokens: int) -> str:
        self.asked.append((prompt, max_output_tokens))
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, ModelError):
            raise answer
        return answer


def words(text: str) -> int:
    return len(text.split())


def hide(text: str) -> str:
    return text.replace("hunter2", "[redacted]")


def brief(model: Model | None = None, **more: object) -> Brief:
    return Brief(count=words, redact=hide, today="Sunday, May 05, 2026", model=model, **more)


def image() -> ImagePart:
    return ImagePart(media_type="image/png", data="aGk=")


def talk() -> list:
    """Return a conversation with every kind of message."""
    call = ToolCall(
        "c1", "write_file", json.dumps({"path": "src/lexer.py", "text": "x" * 700, "n": [1, {"a": "y" * 300}]})
    )
    raw = ToolCall("c2", "terminal", "not json " * 80)
    return as_stored(
        [
            Message(Role.USER, "Build the parser in src/parser.py. The password is hunter2!"),
            Message(Role.ASSISTANT, "We'll use a hand-written lexer. Next I write tests.", tool_calls=(call, raw)),
            Message(Role.TOOL, "Error: no such file src/lexer.py\n" * 12, tool_call_id="c1", tool_name="write_file"),
            Message(Role.TOOL, "short output of the terminal, long enough to be repeated", tool_call_id="c2"),
            Message(Role.USER, (TextPart("Always use tabs, never spaces. Look at this"), image())),
            Message(Role.ASSISTANT, "", tool_calls=(ToolCall("c3", "read_file", '{"path": "docs/a b.md"}'),)),
            Message(
                Role.TOOL,
                "short output of the terminal, long enough to be repeated",
                tool_call_id="c3",
                tool_name="read_file",
            ),
            Message(Role.ASSISTANT, "Decided: we settled on tabs. I still need the grammar in grammar/expr.txt."),
            Message(Role.USER, "Bitte immer auf Deutsch antworten. 请不要用空格。"),
            Message(Role.ASSISTANT, "Gut. " + "Ein langer Satz ohne Ende " * 60),
            Message(Role.USER, "Go on with the grammar"),
        ]
    )


def random_messages(seed: int) -> list[Message]:
    """Return messages in any order, also in one that no API would accept."""
    chance = random.Random(seed)
    out = []
    for number in range(chance.randrange(2, 14)):
        role = chance.choice([Role.USER, Role.USER, Role.ASSISTANT, Role.ASSISTANT, Role.TOOL, Role.SYSTEM])
        calls = ()
        if role is Role.ASSISTANT and chance.random() < 0.5:
            calls = tuple(ToolCall(f"k{chance.randrange(4)}", "tool", "{}") for _ in range(chance.randrange(1, 3)))
        text = chance.choice(["", "   ", f"text {number}", f"words of {number} " * chance.randrange(1, 30)])
        content = text
        if role is Role.USER and chance.random() < 0.2:
            content = (TextPart(text), image())
        call_id = f"k{chance.randrange(4)}" if role is Role.TOOL else None
        out.append(Message(role, content, tool_calls=calls, tool_call_id=call_id))
    return out


def shown(messages) -> list[str]:
    return [
        f"{one.role.value}|{one.text}|{'+image' if not isinstance(one.content, str) else ''}"
        f"|{','.join(call.id + call.arguments for call in one.tool_calls)}|{one.tool_call_id or ''}"
        for one in messages
    ]


def random_limits(chance: random.Random) -> Limits:
    length = chance.choice([400, 1_000, 3_000])
    return Limits(
        context_length=length,
        overhead=chance.choice([0, 40, 300]),
        threshold=length // 2,
        tail=chance.choice([20, 60, 200]),
        summary_cap=chance.choice([20, 100, 400]),
        protect_first=chance.randrange(4),
        protect_last=chance.randrange(1, 6),
    )


def outcome_shown(outcome) -> list:
    match outcome:
        case Compaction():
            return [
                "compaction",
                outcome.summary.role.value,
                outcome.summary.text,
                list(outcome.covered),
                list(outcome.kept_head),
                list(outcome.kept_tail),
                [outcome.tokens_before, outcome.tokens_after, outcome.saved, outcome.strictness, outcome.by_rule],
                outcome.note,
            ]
        case Pruned():
            return ["pruned", outcome.mark, outcome.tokens_before, outcome.tokens_after, outcome.saved, outcome.note]
        case Unchanged():
            return ["unchanged", outcome.reason.value, len(outcome.messages), outcome.note, outcome.saved]
    return []


# --- what is recorded ---------------------------------------------------------------------------------------------


def record_cuts() -> list:
    """Where 60 random conversations are cut."""
    out = []
    for seed in range(60):
        chance = random.Random(seed)
        messages = repair(random_messages(seed) * chance.choice([1, 2, 4]))
        sizes = [chance.choice([1, 8, 30, 90]) for _ in messages]
        given = random_limits(chance)
        plan = plan_cut(messages, sizes, limits=given)
        out.append(
            [
                head_length(messages, given.protect_first),
                tail_start(messages, sizes, limits=given),
                [[each.start, each.stop] for each in groups(messages)],
                None
                if plan is None
                else [
                    plan.head,
                    plan.covered,
                    plan.tail,
                    plan.summary_budget,
                    plan.predicted,
                    plan.strictness,
                    plan.by_rule,
                ],
            ]
        )
    return out


def record_cuts_after_a_summary() -> list:
    """Conversations that already hold a summary."""
    out = []
    for seed in range(30):
        chance = random.Random(1_000 + seed)
        rows = conversation(chance.randrange(2, 9), words=10, with_tools=chance.random() < 0.5)
        summary = Message(chance.choice([Role.USER, Role.ASSISTANT]), summary_text("## Goal\n- x", covered=rows[:2]))
        messages = [*[row.message for row in rows[:2]], summary, *[row.message for row in rows[2:]]]
        sizes = [chance.choice([5, 40, 120]) for _ in messages]
        plan = plan_cut(messages, sizes, limits=random_limits(chance))
        out.append(None if plan is None else [plan.head, plan.covered, plan.tail, plan.summary_budget, plan.strictness])
    return out


def record_repairs() -> list:
    """What is made of 40 lists in any order, and what is wrong with them."""
    return [[shown(repair(random_messages(seed))), faults(random_messages(seed))] for seed in range(40)]


def record_sizes() -> list:
    """Sizes scaled to what the endpoint reported."""
    out = []
    for reported in (None, 1, 60, 500, 2_000, 100_000):
        given = Limits(8_000, 57, 4_000, 800, 400, 1, 3)
        found = measure(talk(), count_by_length, limits=given, current_tokens=reported)
        other = [*[row.message for row in talk()[:2]], Message(Role.USER, "another message of some words")]
        out.append([found.total, list(found.sizes), found.overhead, found.size(other[-1]), found.total_of(other)])
    empty = measure([], count_by_length, limits=Limits(1, 0, 1, 1, 1, 1, 1), current_tokens=5)
    out.append([empty.total, empty.correction])
    out.append(
        [summary_budget(content, cap) for content in (0, 9_999, 10_001, 99_999) for cap in (0, 1, 2_000, 12_000)]
    )
    return out


def record_pruning() -> list:
    """Every row of a conversation, shortened up to each place."""
    rows = talk()
    out = [
        shown([row.message for row in prune(rows, head=1, through=MessageId(place))]) for place in (0, 1, 3, 5, 7, 10)
    ]
    for mark in (None, {"head": 0, "through": 9}, {"head": "x", "through": 9}, {"head": 2, "through": 3}, {"head": 1}):
        out.append(shown([row.message for row in prune_as_marked(rows, mark)]))
    out.append(shown(request_messages([replace(rows[0], api_content="as it was sent"), *rows[4:6]])))
    return out


def record_extracts() -> list:
    """What the rules find, with the ids."""
    rows = talk()
    sources = index_sources(rows, known={400})
    lines = [
        "- the grammar [#11, #12, #400]",
        "- tabs and spaces",
        "- qqq",
        "- grammar expr.txt settled",
        "- parser [#1 to #3]",
    ]
    return [
        extract_sections(rows, redact=hide),
        gist(rows, redact=hide),
        [line_of(row, redact=hide) for row in rows],
        [shorten("abcdefghij" * 3, length) for length in (29, 30, 12, 3)],
        [sources.check(line) for line in lines],
        [index_sources(()).check(line) for line in lines],
        sorted(find_citations(" ".join(lines) + " [#7; #8] [# 9] [#10-12] #13 [#14 and #15]")),
    ]


def record_sections() -> list:
    """Parsing, merging and fitting."""
    text = (
        "intro\n# Goal:\n- one\n**Progress**\n1) two\n### Done\n• three\n## Constraints and preferences\n- none\n"
        "- (None).\n- " + "w" * 700 + "\n## Files\nplain line\n# Unknown\n- lost?\n## Next Steps\n2. four [#3]\n"
    )
    parsed = parse_sections(text)
    other = parse_sections("## In Progress\n- now\n## Goal\n- one\n- uno\n## Key decisions\n- d [#4]")
    both = merge_sections({**parsed, "In Progress": ["- before"]}, other)
    long = {name: [f"- {name} line {n} " + "word " * n + f"[#{n}]" for n in range(6)] for name in both}
    return [
        parsed,
        both,
        render_sections(both),
        [fit_sections(long, budget, count=words) for budget in (500, 200, 120, 60, 30, 12, 4, 1)],
        [clip("one two three four five", budget, count=words) for budget in range(6)],
    ]


def record_prompts() -> list:
    """What the model is asked, and what becomes of its answers."""
    out = []
    earlier = as_stored(
        [Message(Role.USER, summary_text("## Goal\n- old goal [#2]\n## Done\n- x", covered=talk()[:1]))]
    )
    odd = as_stored([Message(Role.USER, summary_text("free text\nof another engine", covered=talk()[:1]))], first_id=90)
    cases: list[tuple[list, int, Model | None, dict]] = [
        (talk(), 200, Model(), {"focus_topic": "the grammar", "memory_context": "likes hunter2 " * 700}),
        ([*earlier, *talk()], 120, Model(), {}),
        ([*odd, *talk()], 150, None, {}),
        (talk(), 60, Model(context_length=900), {}),
        (talk(), 100, Model([ContextOverflow("too long"), GOOD]), {}),
        (talk(), 100, Model([ContextOverflow("too long")]), {}),
        (talk(), 100, Model(["no sections here", GOOD]), {}),
        (talk(), 100, Model(["## Goal\n## Done\n## Next Steps\n"]), {}),
        (talk(), 100, Model([ModelBusy("quota")]), {}),
        (talk(), 100, Model([ModelBusy("quota")]), {"must_end": True}),
        (talk(), 100, Model([ModelRefused("key")]), {}),
        (talk(), 100, Model([ModelError("odd")]), {}),
    ]
    for rows, budget, model, more in cases:
        found = write_summary(rows, budget, brief(model, **more))
        written = ["unreachable", found.error.message] if isinstance(found, Unreachable) else asdict(found)
        out.append([written, model.asked if model is not None else []])
    out.append([split_transcript(talk(), room, brief()) for room in (1_000, 60, 20)])
    return out


def record_compressor() -> list:
    """Outcomes of the default engine over the course of conversations."""
    out = []
    for turns, tools, model in (
        (4, True, None),
        (26, True, None),
        (60, False, None),
        (60, False, Model()),
        (120, True, None),
    ):
        rows = conversation(turns, with_tools=tools)
        engine = prepare_engine(Compressor(), rows)
        engine.setup = replace(engine.setup, model=model)
        out.append(
            [
                engine.should_compress_preflight(rows),
                engine.has_content_to_compress(rows),
                engine.writes_summary(rows),
                outcome_shown(engine.compress(rows, focus_topic="tabs")),
                outcome_shown(engine.compress(rows, current_tokens=40_000)),
                outcome_shown(engine.compress(rows[:9], force=True)),
                engine.state(),
                dict(engine.get_status()),
            ]
        )
        preview = engine.preview(rows)
        out.append(
            None
            if preview is None
            else [len(preview.covered), preview.kept, preview.tokens_before, preview.tokens_at_most, preview.strictness]
        )
    return out


def mostly_output(turns: int, *, with_image: bool = False) -> list:
    """Return a conversation whose talk is short and whose tool output is long."""
    rows = [
        row
        if row.message.role is Role.TOOL
        else replace(row, message=replace(row.message, content=row.message.text[:80]))
        for row in conversation(turns, words=60)
    ]
    if with_image:
        place = max(n for n, row in enumerate(rows) if row.message.role is Role.USER)
        rows[place] = replace(rows[place], message=Message(Role.USER, (TextPart("look at this"), image())))
    return rows


def record_pruned_outcomes() -> list:
    """Conversations for which shortening is enough, or almost."""
    out = []
    for turns in (24, 28, 40, 90):
        for with_image in (False, True):
            rows = mostly_output(turns, with_image=with_image)
            for more in ({}, {"overhead_tokens": 3_000}, {"context_length": 9_000}):
                engine = prepare_engine(Compressor(), rows, **more)
                found = engine.compress(rows)
                messages = shown(found.messages)
                out.append([outcome_shown(found), engine.state(), len(messages), messages[:8], messages[-2:]])
    return out


def record_strict_passes() -> list:
    """Windows so small that later passes are needed."""
    out = []
    for overhead in (0, 200, 600, 900):
        for protect in (0, 1, 3, 5):
            rows = conversation(6, words=30, with_tools=False)
            messages, sizes = [row.message for row in rows], [count_by_length(row.message) for row in rows]
            for cap in (80, 300):
                given = Limits(2_000, overhead, 1_000, 120, cap, protect, 3)
                plan = plan_cut(messages, sizes, limits=given)
                out.append(
                    None
                    if plan is None
                    else [plan.head, plan.covered, plan.tail, plan.summary_budget, plan.predicted, plan.strictness]
                )
    return out


def record_outages() -> list:
    """Cooldowns, pauses and their notes."""
    rows = conversation(60, with_tools=False)
    engine = prepare_engine(Compressor(), rows)
    clock = FixedClock()
    engine.setup = replace(engine.setup, model=Model([ModelBusy("quota", "wait")]), clock=clock)
    out = []
    for seconds in (0, 30, 31, 200, 101, 901, 0):
        clock.forward(seconds=seconds)
        out.append([outcome_shown(engine.compress(rows)), engine.state(), dict(engine.get_status())["cooling_seconds"]])
    urgent = conversation(110, with_tools=False)
    out.append([outcome_shown(engine.compress(urgent))[-2:], engine.state()])
    small = prepare_engine(Compressor(), rows, overhead_tokens=7_990)
    for _ in range(4):
        out.append([outcome_shown(small.compress(conversation(3, words=400, with_tools=False))), small.state()])
    small.update_from_response(Usage(input_tokens=7_900, output_tokens=1))
    out.append(small.state())
    small.update_from_response(Usage(input_tokens=7_000, output_tokens=1))
    out.append([small.state(), small.last_prompt_tokens])
    small.on_session_reset()
    out.append([small.state(), small.last_prompt_tokens])
    return out


def record_lossless() -> list:
    """The tree after several compactions, and what its tools answer."""
    rows = conversation(60)
    engine = prepare_engine(Lossless(), rows)
    first = outcome_shown(engine.compress(rows))
    tools = {tool.schema.name: tool for tool in engine.tools()}
    asked = [
        ("context_grep", {"pattern": "question 3:"}),
        ("context_grep", {"pattern": "question 1.*parser|nothing here", "limit": 2}),
        ("context_grep", {"pattern": "parser", "limit": 0}),
        ("context_grep", {"pattern": " "}),
        ("context_grep", {}),
        ("context_describe", {}),
        ("context_describe", {"node_id": 1}),
        ("context_describe", {"node_id": "x"}),
        ("context_expand", {"node_id": 1, "max_tokens": 120}),
        ("context_expand", {"node_id": 1, "max_tokens": 60, "from_message": 6, "from_char": 40}),
        ("context_expand", {"message_ids": [5, 6, 9_999, "x"], "max_tokens": True}),
        ("context_expand", {"message_ids": "56"}),
        ("context_expand", {}),
    ]
    answers = [tools[name].call(arguments, ToolContext()) for name, arguments in asked]
    model = Model(["- they looked at the parser [#3]\n2) and chose tabs\nno bullet\n- " + "long " * 120])
    told = prepare_engine(Lossless(), rows)
    told.setup = replace(told.setup, model=model)
    second = outcome_shown(told.compress(rows))
    return [
        first,
        [[node.id, node.depth, list(node.children), node.text] for node in engine.tree().nodes.values()],
        answers,
        second,
        [prompt for prompt, _ in model.asked[:2]],
        [budget for _, budget in model.asked],
        dict(engine.get_status()),
        dict(engine.handle_tool_call("other", {}, ToolContext())),
    ]


def record_leaves() -> list:
    """Single nodes, by rule and by model."""
    nodes = [
        Node(n, 0, "\n".join(f"- line {n}.{k} of a node [#{n * 10 + k}]" for k in range(6)), (n,)) for n in range(3)
    ]
    depths = [(0, 0, 0), (1, 0, 0), (1, 0), (2, 1, 1, 1, 0), (0,) * 9, (3,)]
    trees = [[Node(n, depth, "x", ()) for n, depth in enumerate(each)] for each in depths]
    broken = Tree([(1, 1, "a", (1, 2, 7)), (2, 0, "b", (5, 3)), (3, 0, "c", ())])
    return [
        [write_leaf(talk(), budget, brief()) for budget in (300, 80, 20)],
        [
            write_leaf(talk(), 80, brief(Model([answer])))
            for answer in ("- one [#1]\n- two\n", "nothing", ContextOverflow("x"))
        ],
        [write_condensed(nodes, budget, brief()) for budget in (200, 40, 10)],
        write_condensed(nodes, 40, brief(Model(["- all of it [#11, #77]"]))),
        [thin([f"line {n} x" for n in range(9)], budget, count=words) for budget in range(0, 30, 4)],
        [[node.id for node in condensable(each)] for each in trees],
        [[node.id, list(broken.span(node)), broken.messages(node)] for node in broken.nodes.values()],
        [getattr(broken.leaf_of(one), "id", None) for one in (5, 7)],
    ]


def record_numbers() -> list:
    """Limits, backoff, hygiene, defaults."""
    backoff = Backoff()
    steps = []
    for share, automatic, by_rule in (
        (0.5, True, True),
        (0.05, True, True),
        (0.1, True, False),
        (0.0, True, False),
        (0.0, False, False),
    ):
        backoff = backoff.after_outage(100.0).after_compaction(share, automatic=automatic, by_rule=by_rule)
        steps.append([backoff.as_json(), backoff.is_stopped, backoff.is_cooling(159.9), backoff.is_cooling(160.0)])
    stopped = Backoff(ineffective=2)
    setup = Setup(Window(100), count_by_length, FixedClock(), hide)
    engine = ContextEngine()
    engine.prepare(setup)
    return [
        [asdict(limits(Window(length, 10), CompressionSettings())) for length in (8_000, 200_000, 1_000_000)],
        limits(Window(1_001), CompressionSettings()).urgent,
        steps,
        [stopped.after_reading(tokens, 1_000).ineffective for tokens in (0, 1, 899, 900, 1_000)],
        [asdict(load_backoff(value)) for value in (None, [], {"failures": 2, "cool_until": True}, {"by_rule": 1.0})],
        [
            needs_hygiene(count, tokens=tokens, context_length=100)
            for count in (3, 4, 4_999, 5_000)
            for tokens in (84, 85)
        ],
        [
            needs_hygiene(4, tokens=10, context_length=100, reported_tokens=90),
            needs_hygiene(4, tokens=90, context_length=100, enabled=False),
        ],
        [setup.deadline_seconds, setup.given_up(), engine.writes_summary([]), engine.last_prompt_tokens],
        dict(engine.handle_tool_call("x", {}, ToolContext())),
        [why.value for why in Why],
    ]


def record_overflow() -> list:
    """When not even the last message fits."""
    out = []
    for overhead, text in ((15_000, "x" * 4_000), (15_000, "x" * 3_000), (16_001, ""), (10, "short")):
        rows = as_stored([Message(Role.USER, text)])
        found = prepare_engine(Compressor(), rows, overhead_tokens=overhead).overflow(rows)
        out.append(None if found is None else [found.message, found.remedy])
    return out


RECORDED = {name.removeprefix("record_"): make for name, make in list(globals().items()) if name.startswith("record_")}


def as_plain(value):
    return json.loads(json.dumps(value, ensure_ascii=False, default=list))


@pytest.mark.parametrize("name", RECORDED)
def test_the_behaviour_is_the_recorded_one(name: str) -> None:
    """Any difference is a decision: look at it, then record it."""
    found = as_plain(RECORDED[name]())
    held = json.loads(RECORD.read_text(encoding="utf-8")) if RECORD.exists() else {}
    if os.environ.get("RECORD_BEHAVIOUR") == "1":
        RECORD.write_text(json.dumps({**held, name: found}, ensure_ascii=False, indent=1), encoding="utf-8")
        return

    assert found == held[name]


def test_a_session_starts_with_what_was_stored() -> None:
    """The state of an engine survives a restart."""
    engine = prepare_engine(Compressor())
    engine.on_session_start(SessionId("s"), state=Backoff(1, 5.0, 2, 3).as_json())

    assert (engine.session_id, engine.state()) == ("s", Backoff(1, 5.0, 2, 3).as_json())
