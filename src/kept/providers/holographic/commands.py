"""What a person asks the fact store at the terminal."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from kept.core.text import JSON
from kept.providers.base import CommandAnswer, ProviderCommand

RunsTool: TypeAlias = Callable[[Mapping[str, JSON]], Mapping[str, Any]]
_MOST = 50


def commands(fact_store: RunsTool) -> list[ProviderCommand]:
    """Return the commands, which ask the same tool as a model does."""

    def facts(words: Sequence[str]) -> CommandAnswer:
        query = " ".join(words).strip()
        asked: dict[str, JSON] = {"action": "search", "query": query} if query else {"action": "list"}
        found = fact_store({**asked, "limit": _MOST})
        lines = [_line(fact) for fact in found["results"]]
        return CommandAnswer("\n".join(lines) or "no facts", dict(found))

    def contradictions(_words: Sequence[str]) -> CommandAnswer:
        found = fact_store({"action": "contradict", "limit": _MOST})
        lines = [
            f"{each['reason']}\n" + "\n".join(f"  {_line(fact)}" for fact in each["facts"]) for each in found["results"]
        ]
        return CommandAnswer("\n".join(lines) or "no facts contradict each other", dict(found))

    return [
        ProviderCommand("facts", "Facts that answer the words, or the newest ones.", facts),
        ProviderCommand("contradictions", "Facts that cannot both be true.", contradictions),
    ]


def _line(fact: Mapping[str, Any]) -> str:
    return f"{fact['fact_id']:>5}  trust {fact['trust']:.2f}  {fact['content']}"
