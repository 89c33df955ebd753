"""The frame of every screen: templates and their filters, forms, toasts, problems, and signing in."""

from __future__ import annotations

import base64
import difflib
import gzip
import hashlib
import hmac
import json
import os
import re
import time
from datetime import UTC
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, cast

from fastapi import APIRouter, Depends, Form, Query, Request
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape
from msgspec import Struct, field
from starlette.exceptions import HTTPException
from starlette.responses import RedirectResponse, Response

from wellkept import __version__
from wellkept.agent.offload import offload
from wellkept.app import Scope
from wellkept.core.clock import from_epoch
from wellkept.core.text import dumps, printable, resource_path
from wellkept.gateway.identity import COOKIE
from wellkept.gateway.requests import get_caller
from wellkept.gateway.state import tokens
from wellkept.operations import news
from wellkept.sessions.search.occurrences import pattern

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from wellkept.app import App
    from wellkept.core.errors import Refused
    from wellkept.core.text import JSON
    from wellkept.gateway.identity import Gate, Principal

_STEPS = ((60, "minute"), (60, "hour"), (24, "day"), (7, "week"))
_CODE = re.compile("`([^`]+)`")
_MOST_DIFF_WORDS = 3_000
"""Longer texts are shown whole, before and after: comparing them would take seconds."""
ORIGINS = {
    "user": "you",
    "agent": "agent",
    "review": "review",
    "import": "import",
    "undo": "undo",
    "outside": "edited by hand",
    "overflow": "made room",
    "approval": "approved",
    "capture": "capture",
    "": "unknown",
}
PAGES = {"memory": "Memory", "user": "About you", "project": "Project"}
KINDS = {"start": "Session start", "prompt": "With a prompt", "search": "Search by the model", "tool": "Tool"}


@cache
def templates() -> Environment:
    """Return the environment of the templates: everything is escaped, and an unknown name is an error."""
    environment = Environment(
        loader=PackageLoader("wellkept.gateway.web"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
        finalize=_show,
    )
    environment.filters |= {
        "ago": show_moment,
        "span": describe_span,
        "number": lambda value: f"{value:,}",
        "counted": describe_count,
        "sentence": lambda text: text[:1].upper() + text[1:],
        "code": show_code,
        "size": describe_size,
        "origin": lambda word: ORIGINS.get(word, word),
        "page": lambda word: PAGES.get(str(word), str(word)),
        "kind": lambda word: KINDS.get(word, word),
        "exact": write_exactly,
        "words": show_difference,
        "day": lambda moment: f"{from_epoch(moment).astimezone():%-d %B %Y}",
        "clock": lambda moment: f"{from_epoch(moment).astimezone():%H:%M}",
        "folder": lambda path: (path or "").rstrip("/").rpartition("/")[2] or (path or ""),
    }
    environment.globals["asset"] = name_asset
    return environment


def _show(value: object) -> object:
    """Return a value of a template without characters that could deceive the reader, as a terminal shows it."""
    if isinstance(value, Markup):
        return Markup(printable(value))  # noqa: S704 - it is markup already
    return printable(value) if isinstance(value, str) else value


def write_exactly(value: object) -> Markup:
    """Return the value of a form field: the server gets every character back, unprintable ones by reference."""
    written = "".join(
        letter if letter.isprintable() or letter == "\n" else f"&#{ord(letter)};" for letter in str(escape(value))
    )  # fmt: skip
    return Markup(written)  # noqa: S704 - it was escaped before


@cache
def name_asset(name: str) -> str:
    """Return the URL of a static file; it changes with the file, so that browsers may cache it forever."""
    content = resource_path("wellkept.gateway.web", "static", name).read_bytes()
    return f"/static/{name}?v={hashlib.sha256(content).hexdigest()[:10]}"


def describe_span(seconds: float) -> str:
    """Return a span of time in one unit: `3 hours`."""
    if seconds < 45:
        return f"{max(0, round(seconds))} s"
    value, unit = seconds / 60, "minute"
    for size, name in _STEPS[1:]:
        if value < size * 0.95:
            break
        value, unit = value / size, name
    if unit == "week" and value > 9:
        value, unit = value / 4.345, "month"
    if unit == "month" and value > 23:
        value, unit = value / 12, "year"
    count = round(value)
    return f"{count} {unit}{'' if count == 1 else 's'}"


def show_moment(moment: float | None) -> Markup:
    """Return a time relative to now, with the exact one as its title."""
    if moment is None:
        return Markup('<span class="quiet">never</span>')
    try:
        then = from_epoch(moment)
    except (OverflowError, ValueError, OSError):
        return escape(str(moment))
    age = time.time() - moment
    said = f"{describe_span(age)} ago" if age >= 45 else "just now"
    exact = then.astimezone()
    return Markup('<time datetime="{}" title="{}">{}</time>').format(
        then.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"), exact.strftime("%A, %-d %B %Y, %H:%M"), said
    )


def describe_count(count: int, noun: str, plural: str = "") -> str:
    """Return a number with what it counts: `1 message`, `1,200 messages`."""
    return f"{count:,} {noun if count == 1 else plural or f'{noun}s'}"


def describe_size(count: float) -> str:
    """Return a number of bytes in the unit that people read."""
    for unit in ("bytes", "KB", "MB"):
        if count < 1_000:
            return f"{count:.0f} {unit}" if unit == "bytes" or count >= 100 else f"{count:.1f} {unit}"
        count /= 1_000
    return f"{count:.1f} GB"


def show_code(text: str) -> Markup:
    """Return a message of ours with its commands, which stand in backticks, as code."""
    return Markup(_CODE.sub(r"<code>\1</code>", str(escape(text))))  # noqa: S704 - the text is escaped before


def show_difference(before: str | None, after: str | None) -> Markup:
    """Return the changes of a text word by word: removed words struck out, new ones marked."""
    old, new = _split(before or ""), _split(after or "")
    if before is None or after is None or len(old) + len(new) > _MOST_DIFF_WORDS:
        gone = Markup("<del>{}</del>").format(before) if before else Markup("")
        come = Markup("<ins>{}</ins>").format(after) if after else Markup("")
        return gone + (Markup(" ") if gone and come else Markup("")) + come
    return Markup("").join(_mark_difference(old, new))


def _mark_difference(old: Sequence[str], new: Sequence[str]) -> Iterator[Markup]:
    for kind, a, b, c, d in difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        gone, come = "".join(old[a:b]), "".join(new[c:d])
        if kind == "equal":
            yield escape(gone)
            continue
        if gone:
            yield Markup("<del>{}</del>").format(gone)
        if come:
            yield Markup("<ins>{}</ins>").format(come)


def _split(text: str) -> list[str]:
    return re.findall(r"\s+|[^\s]+", text)


def show_marked(text: str, terms: Sequence[str]) -> Markup:
    """Return a text with the words of a query marked."""
    wanted = pattern(terms)
    shown, end = Markup(""), 0
    for match in wanted.finditer(text) if wanted is not None else ():
        shown += escape(text[end : match.start()]) + Markup("<mark>{}</mark>").format(match.group())
        end = match.end()
    return shown + escape(text[end:])


POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'; manifest-src 'self'"
)
"""Nothing inline, nothing from other sites: injected markup can neither run nor load anything."""
_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": POLICY,
    # with `no-referrer` a browser calls the origin of a plain form "null", and the form would be refused
    "Referrer-Policy": "same-origin",
    "Vary": "Cookie, HX-Request",
}
SIGN_IN = "/sign-in"
_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".webmanifest": "application/manifest+json",
}
TOAST = "kept_toast"
_TOAST_SECONDS = 60
_TOAST_KEY = os.urandom(32)
"""Of this process: a message is shown on the next page, or not at all after a restart."""
_MOST_TOAST = 3_000
_LEAST_COMPRESSED = 1_000
_SCREENS = (
    ("", (("home", "/", "Home", "h"), ("memory", "/memory", "Memory", "m"), ("search", "/search", "Search", "f"),
          ("sessions", "/sessions", "Sessions", "s"), ("chat", "/chat", "Chat", "c"))),
    ("What agents see", (("preview", "/preview", "Preview", "p"), ("receipts", "/receipts", "Receipts", "r"),
                         ("agents", "/agents", "Agents", "a"))),
    ("More", (("skills", "/skills", "Skills", "k"), ("providers", "/providers", "Providers", "v"),
              ("usage", "/usage", "Usage", "u"), ("forget", "/forget", "Forget", "x"),
              ("settings", "/settings", "Settings", ","))),
)  # fmt: skip
"""The screens by group: name, address, title, and the key after `g`."""
_TITLES = {name: title for _, screens in _SCREENS for name, _, title, _ in screens}

router = APIRouter(include_in_schema=False)


class Toast(Struct, frozen=True):
    """A message about a completed change, shown once on the next page, with a form that undoes it."""

    text: str
    undo: str = ""
    """The path that the Undo form posts to; empty if the change cannot be undone."""
    fields: Mapping[str, str] = field(default_factory=dict)
    is_problem: bool = False


async def check_form(request: Request) -> None:
    """Refuse a form without the CSRF token of this user."""
    if request.method not in {"GET", "HEAD"}:
        form = await request.form()
        expected = await offload(sign_form, request)
        if not hmac.compare_digest(_unmask(str(form.get("form_token", ""))), expected):
            raise HTTPException(403, "this form is too old or was not made by this page; load the page again")


Checked = Depends(check_form)
"""Every router of screens has this dependency, so that no form can omit the check."""


def sign_form(request: Request) -> str:
    """Return the CSRF token for forms of this user."""
    state = request.app.state
    if getattr(state, "form_key", None) is None:
        state.form_key = tokens.read_form_key(get_app(request))
    name = cast("Principal", request.state.principal).name
    return hmac.new(state.form_key, name.encode("utf-8", "replace"), hashlib.sha256).hexdigest()[:40]


def mask_token(token: str) -> str:
    """Return a token in a form that differs on every page: the length of compressed pages must not reveal it."""
    pad = os.urandom(len(token) // 2)
    return pad.hex() + bytes(a ^ b for a, b in zip(pad, bytes.fromhex(token), strict=True)).hex()


def _unmask(text: str) -> str:
    try:
        masked = bytes.fromhex(text)
    except ValueError:
        return ""
    half = len(masked) // 2
    return bytes(a ^ b for a, b in zip(masked[:half], masked[half:], strict=False)).hex()


def get_app(request: Request) -> App:
    """Return the open app of the server."""
    return cast("App", request.app.state.app)


def show(request: Request, template: str, /, *, status: int = 200, **values: Any) -> Response:
    """Return a screen; `values` are what its template shows, and a title where it is not that of the whole screen."""
    caller = get_caller(request)
    toast = values.pop("toast", None) or _read_toast(request)
    here = request.url.path.split("/")[1] or "home"
    context = {
        "screens": _SCREENS,
        "form_token": mask_token(sign_form(request)),
        "toast": toast,
        "user": caller.user,
        "is_owner": caller.is_owner,
        "can_write": Scope.WRITE in caller.scopes,
        "can_admin": Scope.ADMIN in caller.scopes,
        "can_decide": Scope.DECIDE in caller.scopes,
        "is_signed_in": COOKIE in request.cookies,
        "theme": request.cookies.get("kept_theme", "auto"),
        "has_demo": request.app.state.is_demo,
        "waiting": news.count_waiting(caller),
        "version": __version__,
        "query": "",
        "here": here,
        "title": _TITLES.get(here, ""),
        **values,
    }
    text = templates().get_template(template).render(context)
    response = compress(request, write_html(text, status))
    if TOAST in request.cookies:
        response.delete_cookie(TOAST, path="/")
    return response


def show_part(template: str, /, *, status: int = 200, **values: Any) -> Response:
    """Return a fragment that replaces a part of a page."""
    return write_html(templates().get_template(template).render(values), status)


def write_html(text: str, status: int = 200) -> Response:
    """Return HTML that no cache stores; lone surrogates, which cannot be sent, are replaced."""
    body = text.encode("utf-8", "replace")
    return Response(body, status, media_type="text/html; charset=utf-8", headers=dict(_HEADERS))


def compress(request: Request, response: Response) -> Response:
    """Compress the answer if the browser supports it: on a phone, most of the wait is the transfer."""
    if len(response.body) < _LEAST_COMPRESSED or "gzip" not in request.headers.get("accept-encoding", ""):
        return response
    response.body = gzip.compress(bytes(response.body), 5, mtime=0)
    response.headers["Content-Length"] = str(len(response.body))
    response.headers["Content-Encoding"] = "gzip"
    response.headers["Vary"] = "Accept-Encoding, Cookie, HX-Request"
    return response


def go(address: str, toast: Toast | None = None) -> Response:
    """Answer a form: redirect to a page, which shows what was done."""
    response = RedirectResponse(address, 303, headers={"Cache-Control": "no-store"})
    if toast is not None:
        value: dict[str, JSON] = {
            "text": toast.text[:300],
            "undo": toast.undo,
            "fields": dict(toast.fields),
            "bad": toast.is_problem,
        }
        packed = base64.urlsafe_b64encode(dumps(value).encode("utf-8", "replace")).decode()
        if len(packed) <= _MOST_TOAST:
            response.set_cookie(
                TOAST,
                f"{packed}.{_sign_toast(packed)}",
                max_age=_TOAST_SECONDS,
                path="/",
                httponly=True,
                samesite="strict",
            )
    return response


def refuse(address: str, refused: Refused) -> Response:
    """Answer a form whose operation was refused and whose texts need not be shown again."""
    return go(address, Toast(f"{refused.error} {refused.remedy}".strip(), is_problem=True))


def _read_toast(request: Request) -> Toast | None:
    packed, _, signature = request.cookies.get(TOAST, "").partition(".")
    # a page on another port of this host can set cookies: it must not choose which form a button sends
    if not packed or not hmac.compare_digest(signature.encode(), _sign_toast(packed).encode()):
        return None
    try:
        value = json.loads(base64.urlsafe_b64decode(packed))
        fields = {str(name): str(each) for name, each in dict(value["fields"]).items()}
        return Toast(str(value["text"]), str(value["undo"]), fields, is_problem=bool(value["bad"]))
    except (ValueError, KeyError, TypeError):
        return None


def _sign_toast(packed: str) -> str:
    return hmac.new(_TOAST_KEY, packed.encode(), hashlib.sha256).hexdigest()


def safe_address(text: str, default: str = "/") -> str:
    """Return an address of this server to go to; anything else is replaced."""
    plain = text.isprintable() and not set(text) & set('\\"<>')
    return text if plain and text.startswith("/") and not text.startswith("//") else default


@router.get("/more")
def show_more(request: Request) -> Response:
    """Show links to all screens, for narrow displays."""
    return show(request, "more.html", title="All screens")


# signing in


@router.get("/sign-in")
def ask_token(request: Request, to: str = "/", link: Annotated[str, Query(max_length=200)] = "") -> Response:
    """Sign in the person who opened a link of the terminal, or show the form."""
    if not link:
        return _show_sign_in(request, to)
    made = tokens.use_link(get_app(request), link)
    if made is None:
        problem = "This link was used before, or it has expired. `kept serve link` prints a new one."
        return _show_sign_in(request, to, problem=problem, status=403)
    return _set_cookie(request, go(safe_address(to)), made)


def _show_sign_in(request: Request, to: str, *, problem: str = "", status: int = 200) -> Response:
    del request
    context = {"to": safe_address(to), "problem": problem, "version": __version__}
    return write_html(templates().get_template("sign_in.html").render(context), status)


@router.post("/sign-in")
def sign_in(request: Request, token: Annotated[str, Form()] = "", to: Annotated[str, Form()] = "/") -> Response:
    """Exchange a token for a separate token of the browser."""
    gate = cast("Gate", request.app.state.gate)
    known = gate.find_token(token.strip(), request.client.host if request.client else "")
    made = tokens.sign_in(get_app(request), known) if known is not None else None
    if made is None:
        return _show_sign_in(request, to, problem="This token is not valid, or it may not read.", status=403)
    return _set_cookie(request, go(safe_address(to), Toast("You are signed in.")), made)


def _set_cookie(request: Request, response: Response, made: tokens.NewToken) -> Response:
    """Give the browser its token."""
    seconds = int(tokens.BROWSER_DAYS * 86_400)
    is_secure = request.url.scheme == "https" or request.headers.get("x-forwarded-proto") == "https"
    response.set_cookie(
        COOKIE, made.secret, max_age=seconds, path="/", httponly=True, samesite="strict", secure=is_secure
    )
    return response


@router.post("/sign-out", dependencies=[Checked])
def sign_out(request: Request) -> Response:
    """Revoke the token of this browser."""
    tokens.sign_out(get_app(request), request.cookies.get(COOKIE, ""))
    response = go("/sign-in")
    response.delete_cookie(COOKIE, path="/")
    return response


# problems


def wants_page(headers: Mapping[str, str]) -> bool:
    """Whether the client is a browser, which shows a problem as a page."""
    return "text/html" in headers.get("accept", "")


def show_problem(request: Request, told: Mapping[str, Any], status: int) -> Response:
    """Return a problem as a screen, or without its frame where nobody is signed in."""
    caller = getattr(request.state, "caller", None)
    if caller is None or Scope.READ not in caller.scopes:
        return show_plain_problem(told, status)
    title = str(told.get("title", "Error"))
    return show(request, "problem.html", status=status, here="", title=title, problem={"next": "", **told})


def show_plain_problem(told: Mapping[str, Any], status: int, retry_after: str | None = None) -> Response:
    """Return a problem as a page without user data."""
    context = {"problem": {"title": "Error", "next": "", **told}, "version": __version__}
    response = write_html(templates().get_template("problem_plain.html").render(context), status)
    if retry_after is not None:
        response.headers["Retry-After"] = retry_after
    return response


# style and script


@cache
def _find_assets() -> Mapping[str, str]:
    """Return the names of the static files with their types."""
    paths = resource_path("wellkept.gateway.web", "static").iterdir()
    return {path.name: _TYPES[path.suffix] for path in paths if path.suffix in _TYPES}


@router.get("/static/{name}")
def send_asset(request: Request, name: str) -> Response:
    """Send a static file; with its hash in the request it is cached forever."""
    kind = _find_assets().get(name)
    if kind is None:
        raise HTTPException(404, "there is no such file")
    is_exact = request.url.path + "?" + request.url.query == name_asset(name)
    kept = "public, max-age=31536000, immutable" if is_exact else "no-cache"
    content = resource_path("wellkept.gateway.web", "static", name).read_bytes()
    return compress(request, Response(content, media_type=kind, headers={"Cache-Control": kept}))
