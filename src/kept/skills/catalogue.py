"""The catalogue of skills in the prompt: bounded in tokens, however many skills there are."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from kept.core.text import resource_text
from kept.skills.index import Skill
from kept.skills.roots import Kind
from kept.skills.usage import Use

_LINE_CHARS = 140
_GENERAL = "general"
_LEAST_LINE_TOKENS = 3


def estimate_tokens(text: str) -> int:
    """Return an upper bound of the tokens in `text` for the usual tokenisers."""
    ascii_chars = len(text.encode("ascii", "ignore"))
    return -(-ascii_chars * 10 // 34) + (len(text) - ascii_chars)


def catalogue(
    skills: Sequence[Skill],
    usage: Mapping[str, Use],
    *,
    budget: int,
    count: Callable[[str], int] = estimate_tokens,
) -> str:
    """Return the block that lists the skills in at most `budget` tokens; empty when there are none.

    When not all fit, skills of the project, pinned ones and recently used ones come first; the
    rest is only counted by category.
    """
    if not skills:
        return ""
    header = _header()
    order = _sort_by_priority(skills, usage)
    every = Counter(skill.category or _GENERAL for skill in skills)
    low, high = 0, min(len(order), budget // _LEAST_LINE_TOKENS)
    while low < high:  # binary search: the text grows with every skill listed
        middle = (low + high + 1) // 2
        if count(_render(header, order[:middle], every)) <= budget:
            low = middle
        else:
            high = middle - 1
    text = _render(header, order[:low], every)
    return text if count(text) <= budget else _count_only(header, len(skills), budget, count)


def _header() -> str:
    return resource_text("kept.skills", "texts", "catalogue.md").strip()


def _sort_by_priority(skills: Sequence[Skill], usage: Mapping[str, Use]) -> list[Skill]:
    """Sort skills of the project and pinned ones first, then by last use, then the rest by name."""
    never = Use()
    first: list[Skill] = []
    used: list[Skill] = []
    rest: list[Skill] = []
    for skill in sorted(skills, key=lambda skill: skill.name):
        use = usage.get(skill.name, never)
        if skill.root.kind is Kind.PROJECT or use.pinned:
            first.append(skill)
        else:
            (used if use.last_used_at else rest).append(skill)
    used.sort(key=lambda skill: usage[skill.name].last_used_at or "", reverse=True)
    return [*first, *used, *rest]


def _render(header: str, named: Sequence[Skill], every: Counter[str]) -> str:
    lines: list[str] = []
    for category, skills in sorted(_group_by_category(named).items()):
        lines.append(f"{category}:")
        lines.extend(f"- {skill.name}: {_shorten(skill.description)}" for skill in skills)
    rest = every - Counter(skill.category or _GENERAL for skill in named)
    if rest:
        listed = ", ".join(f"{category} ({number})" for category, number in sorted(rest.items()))
        lines.append(f"Not listed, found with skills_list(query=…): {listed}")
    return "\n".join([header, *lines])


def _count_only(header: str, total: int, budget: int, count: Callable[[str], int]) -> str:
    """Return only the number of skills, when the budget is too small even for the categories."""
    text = f"{header}\n{total} skills: find them with skills_list(query=…)"
    return text if count(text) <= budget else f"{total} skills: skills_list(query=…), then skill_view(name)"


def _group_by_category(skills: Sequence[Skill]) -> dict[str, list[Skill]]:
    groups: dict[str, list[Skill]] = {}
    for skill in sorted(skills, key=lambda skill: skill.name):
        groups.setdefault(skill.category or _GENERAL, []).append(skill)
    return groups


def _shorten(description: str) -> str:
    text = " ".join(description.split())
    return text if len(text) <= _LINE_CHARS else text[: _LINE_CHARS - 1].rstrip() + "…"
