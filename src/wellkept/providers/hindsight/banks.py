"""The banks of one user at Hindsight: their names from a template, and the routes that the provider uses."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from string import Formatter
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from wellkept.core.errors import ConfigError
from wellkept.core.ids import OWNER
from wellkept.providers.http import BackendMissing
from wellkept.providers.remote import objects, text_of

if TYPE_CHECKING:
    from wellkept.core.text import JSON
    from wellkept.providers.http import HttpClient

DEFAULT_TEMPLATE: Final = "kept-{profile}-{user}"
PARTS: Final = ("profile", "workspace", "platform", "user", "session")
_CHANGING: Final = ("workspace", "platform", "session")
"""Parts that differ between the conversations of one user."""
_PAGE: Final = 100
_MOST_PAGES: Final = 100

Items = list[Mapping[str, "JSON"]]


def check_template(template: str) -> None:
    """Raise what is wrong with a template of bank names."""
    accepted = "use letters, digits, - and _, and the parts " + " ".join(f"{{{part}}}" for part in PARTS)
    try:
        pieces = list(Formatter().parse(template))
    except ValueError:
        raise ConfigError(f"bank_id_template cannot be {template!r}", accepted) from None
    for place, (literal, part, spec, conversion) in enumerate(pieces):
        if (
            not re.fullmatch(r"[A-Za-z0-9_-]*", literal)
            or spec
            or conversion
            or (part is not None and part not in PARTS)
        ):
            raise ConfigError(f"bank_id_template cannot be {template!r}", accepted)
        # two parts side by side would give the same name for different users
        if place and part is not None and literal.strip("-_") == literal:
            raise ConfigError(f"bank_id_template cannot be {template!r}", "separate its parts by - or _")
    if not template:
        raise ConfigError("bank_id_template is empty", accepted)


class BankNames:
    """The names of one user's banks; without {user} in the template, only the owner's have the plain name."""

    def __init__(self, template: str, *, user: str, profile: str) -> None:
        check_template(template)
        self._template = template if "{user}" in template or user == OWNER else f"{template}-{{user}}"
        self._fixed = {"user": _plain(user), "profile": _plain(profile)}

    @property
    def base(self) -> str:
        """Return the bank of what belongs to no conversation: the entries of the pages."""
        return self.of(workspace="", platform="", session="")

    def of(self, *, workspace: str, platform: str, session: str) -> str:
        """Return the bank of a conversation."""
        changing = {"workspace": _plain(workspace), "platform": _plain(platform), "session": _plain(session)}
        return self._template.format(**self._fixed, **changing)

    def is_one(self, bank: str) -> bool:
        """Whether a bank is this user's. Parts hold letters and digits only, so that no other user's bank fits."""
        known = dict.fromkeys(_CHANGING, "[A-Za-z0-9]*") | self._fixed
        return (
            re.fullmatch(re.escape(self._template).replace(r"\{", "{").replace(r"\}", "}").format(**known), bank)
            is not None
        )


def _plain(text: str) -> str:
    """Return letters and digits; different texts give different ones."""
    if re.fullmatch(r"[A-Za-z0-9]*", text):
        return text
    digest = hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:8]
    return re.sub(r"[^A-Za-z0-9]", "", text)[-40:] + digest


class BankApi:
    """The routes of a Hindsight server."""

    def __init__(self, client: HttpClient, *, retain_seconds: float) -> None:
        self._client = client
        self._retain_seconds = retain_seconds
        self._made: set[str] = set()

    def retain(self, bank: str, item: Mapping[str, JSON]) -> None:
        """Store one item and wait until it is extracted."""
        if bank not in self._made:
            self._client.put(_path(bank), {})
            self._made.add(bank)
        body: dict[str, JSON] = {"items": [dict(item)], "async": False}
        self._client.post(f"{_path(bank)}/memories", body, seconds=self._retain_seconds)

    def recall(self, bank: str, query: str, *, budget: str, max_tokens: int) -> Items:
        """Return what is recalled; nothing from a bank that does not exist yet."""
        body: dict[str, JSON] = {"query": query, "budget": budget, "max_tokens": max_tokens}
        try:
            return objects(self._client.post(f"{_path(bank)}/memories/recall", body), "results")
        except BackendMissing as missing:
            return _empty_bank(missing)

    def reflect(self, bank: str, query: str, *, budget: str, seconds: float) -> str:
        """Return what the server's model concludes from the bank."""
        try:
            answer = self._client.post(f"{_path(bank)}/reflect", {"query": query, "budget": budget}, seconds=seconds)
        except BackendMissing as missing:
            _empty_bank(missing)
            return ""
        return text_of(answer, "text") if isinstance(answer, Mapping) else ""

    def document(self, bank: str, document: str) -> Mapping[str, JSON]:
        """Return a document with its text; empty if there is none."""
        try:
            found = self._client.get(f"{_path(bank)}/documents/{quote(document, safe='')}")
        except BackendMissing as missing:
            _empty_bank(missing)
            return {}
        return found if isinstance(found, Mapping) else {}

    def delete_document(self, bank: str, document: str) -> None:
        """Delete a document with its memories; a missing one is not an error."""
        try:
            self._client.request("DELETE", f"{_path(bank)}/documents/{quote(document, safe='')}")
        except BackendMissing as missing:
            _empty_bank(missing)

    def delete_bank(self, bank: str) -> None:
        """Delete a bank with everything in it."""
        self._made.discard(bank)
        self._client.delete(_path(bank))

    def invalidate(self, bank: str, memory: str) -> None:
        """Take one memory out of every recall: the server has no route that deletes a single one."""
        body: dict[str, JSON] = {"state": "invalidated", "reason": "forgotten"}
        self._client.patch(f"{_path(bank)}/memories/{quote(memory, safe='')}", body)

    def documents_with(self, bank: str, text: str) -> list[str]:
        """Return the documents whose text contains `text`, ignoring case."""
        return [text_of(each, "id") for each in self._list(f"{_path(bank)}/documents", "items", q=text)]

    def memories_with(self, bank: str, text: str) -> Items:
        """Return the memories that are recalled and contain `text`, ignoring case."""
        found = self._list(f"{_path(bank)}/memories/list", "items", q=text)
        return [each for each in found if each.get("state", "valid") == "valid"]

    def list_banks(self) -> list[str]:
        """Return the names of all banks."""
        return [text_of(each, "bank_id") for each in self._list("/v1/default/banks", "banks")]

    def count(self, bank: str) -> int:
        """Return how many memories a bank has."""
        try:
            answer = self._client.get(f"{_path(bank)}/memories/list", limit=1)
        except BackendMissing as missing:
            return len(_empty_bank(missing))
        total = answer.get("total") if isinstance(answer, Mapping) else None
        return total if isinstance(total, int) else 0

    def version(self) -> str:
        """Return the version of the server."""
        answer = self._client.get("/version")
        return text_of(answer, "api_version") if isinstance(answer, Mapping) else ""

    def _list(self, path: str, key: str, **params: str) -> Items:
        found: Items = []
        for page in range(_MOST_PAGES):
            paging = {"limit": _PAGE, "offset": page * _PAGE}
            try:
                listed = objects(self._client.request("GET", path, params={**params, **paging}), key)
            except BackendMissing as missing:
                return _empty_bank(missing)
            found += listed
            if len(listed) < _PAGE:
                break
        return found


def _path(bank: str) -> str:
    return f"/v1/default/banks/{quote(bank, safe='')}"


def _empty_bank(missing: BackendMissing) -> Items:
    """Return nothing if the bank or document does not exist; raise if it is the route that is missing."""
    if "not found" in missing.message.casefold() and not missing.message.endswith("404: Not Found"):
        return []
    raise missing
