"""A long coding conversation with planted facts, the same on every machine."""

import random
from collections.abc import Iterator
from dataclasses import dataclass

from wellkept.core.messages import Message, Role, ToolCall

SYSTEM_TOKENS = 3_200
"""The system prompt: identity, guidance, memory, project files."""
TOOL_TOKENS = 4_800
"""The schemas of about twenty tools."""

_VERBS = ("refactor", "rename", "extract", "inline", "cache", "retry", "validate", "parse", "stream", "batch")
_NOUNS = ("parser", "scheduler", "ledger", "session", "tokenizer", "router", "exporter", "migration", "worker", "index")
_SERVICES = ("atlas", "birch", "cobalt", "delta", "ember", "fjord", "garnet", "harbor", "indigo", "juniper")
_KEYS = (
    "staging port",
    "retry limit",
    "owner",
    "release branch",
    "queue name",
    "time-out",
    "region",
    "schema version",
    "log level",
    "budget code",
)


@dataclass(frozen=True)
class Fact:
    """Something said once that must be found again."""

    turn: int
    question: str
    answer: str
    said: str


@dataclass(frozen=True)
class Turn:
    """What happens between two user messages: the user's words, tool rounds, the answer."""

    number: int
    rounds: list[list[Message]]
    """Messages that are new before each request; the model's own answer to it is the first of the next."""
    pause_seconds: float


def facts(turns: int, count: int = 200) -> dict[int, Fact]:
    """Return the planted facts by turn, spread evenly."""
    rng = random.Random(7)
    found = {}
    for number in range(count):
        turn = number * (turns - 4) // count + 3
        key = _KEYS[number % 10]
        name = f"{_SERVICES[number // 10 % 10]}-{rng.randrange(100, 999)}"
        value = f"{rng.choice(_NOUNS)}-{rng.randrange(10_000, 99_999)}"
        found[turn] = Fact(
            turn, f"What is the {key} of {name}?", value, f"For the record: the {key} of {name} is {value}."
        )
    return found


def conversation(turns: int) -> Iterator[Turn]:
    """Yield `turns` turns; one in forty follows a break that is longer than the cache lives."""
    rng = random.Random(11)
    planted = facts(turns)
    for number in range(turns):
        pause = 900.0 if number % 40 == 39 else rng.expovariate(1 / 45)
        yield Turn(number, _rounds(number, rng, planted.get(number)), min(pause, 280.0) if pause < 900 else pause)


def _rounds(number: int, rng: random.Random, fact: Fact | None) -> list[list[Message]]:
    verb, noun = rng.choice(_VERBS), rng.choice(_NOUNS)
    ask = f"Please {verb} the {noun} in src/{noun}/{verb}_{number % 83}.py and tell me what changed."
    rounds = [[Message(Role.USER, f"{ask} {fact.said}" if fact else ask)]]
    for step in range(rng.choice((1, 1, 2, 3))):
        call = ToolCall(
            f"call_{number}_{step}", rng.choice(("read_file", "terminal", "edit_file")), _arguments(rng, noun)
        )
        rounds.append(
            [
                Message(Role.ASSISTANT, f"I look at the {noun} first." if step == 0 else "", tool_calls=(call,)),
                Message(Role.TOOL, _output(rng, noun), tool_call_id=call.id, tool_name=call.name),
            ]
        )
    rounds.append([Message(Role.ASSISTANT, _answer(rng, verb, noun, number))])
    return rounds


def _arguments(rng: random.Random, noun: str) -> str:
    body = " ".join(rng.choice(_NOUNS) for _ in range(rng.choice((3, 10, 120))))
    return f'{{"path": "src/{noun}/part.py", "text": "{body}"}}'


def _output(rng: random.Random, noun: str) -> str:
    lines = rng.choice((4, 12, 30, 60))
    return "\n".join(
        f"{place:4}  def {rng.choice(_VERBS)}_{noun}_{rng.randrange(999)}(self, value: int) -> str:"
        for place in range(lines)
    )


def _answer(rng: random.Random, verb: str, noun: str, number: int) -> str:
    steps = " ".join(
        f"The {rng.choice(_NOUNS)} now calls {rng.choice(_VERBS)}_{noun}() and test_{rng.randrange(400)} passes."
        for _ in range(rng.choice((2, 4, 8)))
    )
    return f"Done: I chose to {verb} the {noun} in step {number}. {steps} Next I would update the documentation."
