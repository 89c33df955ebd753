"""What the scripts of a skill may do, in plain words for a person who decides; no verdict rests on it."""

import re
from collections.abc import Mapping

from kept.skills.guard.prose import is_prose

_ABILITIES = (
    (
        "use the network",
        re.compile(r"\b(curl|wget|requests|urllib|httpx|aiohttp|socket|fetch|axios|Invoke-WebRequest)\b"),
    ),
    ("start other programs", re.compile(r"\b(subprocess|os\.system|exec|spawn|child_process|Start-Process|eval)\b")),
    ("delete or move files", re.compile(r"\b(rm|rmtree|unlink|Remove-Item|shutil\.move|os\.remove|mv)\b")),
    ("write files", re.compile(r"\b(write_text|write_bytes|writeFile|tee|open\([^)]*['\"][wa])|>>?\s*[\w~/$]")),
    ("read environment variables", re.compile(r"\b(os\.environ|getenv|process\.env|printenv)\b|\$\{?[A-Z_]{4,}")),
    ("install packages", re.compile(r"\b(pip|pipx|uv|npm|npx|apt|apt-get|brew|cargo|gem) +(-\w+ +)*(install|add|i)\b")),
    ("ask for administrator rights", re.compile(r"\b(sudo|doas|runas|pkexec)\b")),
)


def abilities(contents: Mapping[str, bytes]) -> tuple[str, ...]:
    """Return in plain words what the scripts among `contents` may do."""
    text = "\n".join(data.decode("utf-8", "replace") for path, data in contents.items() if not is_prose(path))
    return tuple(words for words, pattern in _ABILITIES if pattern.search(text))
