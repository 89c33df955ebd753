"""The shapes of credentials, and their redaction in stored text."""

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from kept.core.text import JSON

_BARE = r"(?i)(?:^|[^a-z])$"
_PLACEHOLDER = re.compile(
    r"(?i)example|changeme|change_me|placeholder|your[_-]|my[_-]|dummy|redacted|x{4}|\*{3}|\.{3}|^\$|^%|getenv|environ|process\.|"
    r"config[.\[]|secrets\.|vault:|^(?:password|passwd|secret|token|test|user|admin)[\d_!]{0,4}$|^abc123|^https?:|^/|^\w+\.\w+[.(]",
)
_ENOUGH_BITS = 3.0
_SHORT = 16
_TAIL = ".:!?"


_ASSIGNED = (
    r"""["'\\]{0,2}(?:\s{0,2}(?::|=>|:?=)\s{0,2}|\s--?\s?)["'`\\]{0,2}"""
    r"""(?P<secret>(?=[^\s"'`0-9]{0,24}[0-9])[^\s"'`,;<>{}()\[\]]{6,256})"""
)
_AWS_ASSIGNED = _ASSIGNED.replace("{6,256}", "{40}")
_SAID = r"""["']?\s(?:is|ist|lautet|es|est|was|war)\s?:?\s["'`]?(?P<said>[^\s"'`,;<>{}()\[\]]{6,80})"""
_QUALIFIED = (
    r"(?i)(?:api|access|auth|secret|private|signing|encryption|client|master|account|service|session|refresh|"
    r"bot|app|[a-z0-9]_|[a-z0-9]-)[_ -]?$"
)
_LOGIN_WORD = r"(?i)(?:passw(?:or)?d|passwort|passphrase|pwd|contrase(?:ñ|n)a|mot de passe|kennwort)"
_PEM = (
    r"-----BEGIN [A-Z0-9 ]{0,30}PRIVATE KEY(?: BLOCK)?-----"
    r"(?:[\s\\n]{0,4}(?:Proc-Type|DEK-Info)[^\n]{0,80}){0,2}"
    r"[A-Za-z0-9+/=\s\\:,.]{0,20000}(?:-----END [A-Z0-9 ]{0,40}-----)?"
)


@dataclass(frozen=True, slots=True)
class Shape:
    """The pattern of one kind of credential, and the literals of which it always contains one."""

    rule: str
    anchors: tuple[str, ...]
    pattern: str
    vague: bool = False
    """The value must be checked as well, because prose and code can match; case is ignored."""
    qualifier: str | None = None
    """What the text just before must end with, so that a bare `key = …` does not match."""


SHAPES = (
    Shape("anthropic_key", ("sk-ant-",), r"sk-ant-[\w-]{20,200}"),
    Shape(
        "openai_key", ("sk-",), r"(?<![\w-])sk-(?!ant-)(?:proj-|svcacct-|admin-|or-v1-)?(?=[\w-]{0,64}\d)[\w-]{20,220}"
    ),
    Shape("github_token", ("ghp_", "gho_", "ghu_", "ghs_", "ghr_"), r"gh[pousr]_[A-Za-z0-9]{30,255}"),
    Shape("github_token", ("github_pat_",), r"github_pat_\w{22,255}"),
    Shape("gitlab_token", ("glpat-", "gldt-", "glrt-", "glptt-"), r"gl(?:pat|dt|rt|ptt)-[\w-]{20,64}"),
    Shape("slack_token", ("xox", "xapp-"), r"(?:xox[abeoprs]|xapp)-[\w-]{10,250}"),
    Shape("slack_webhook", ("hooks.slack.com/",), r"hooks\.slack\.com/(?:services|workflows)/[\w/]{20,100}"),
    Shape("discord_webhook", ("/api/webhooks/",), r"/api/webhooks/\d{15,21}/[\w-]{60,72}"),
    Shape("aws_access_key", ("AKIA", "ASIA", "ABIA", "ACCA"), r"\bA(?:KIA|SIA|BIA|CCA)[A-Z2-7]{16}\b"),
    Shape("google_api_key", ("AIza",), r"AIza[\w-]{35}"),
    Shape("google_oauth_token", ("ya29.", "GOCSPX-"), r"(?:ya29\.[\w-]{20,400}|GOCSPX-[\w-]{20,40})"),
    Shape(
        "stripe_key",
        ("sk_live_", "rk_live_", "sk_test_", "rk_test_", "whsec_"),
        r"(?:[sr]k_(?:live|test)|whsec)_[A-Za-z0-9+/=]{16,250}",
    ),
    Shape("npm_token", ("npm_",), r"npm_[A-Za-z0-9]{36}"),
    Shape("pypi_token", ("pypi-",), r"pypi-[\w-]{50,400}"),
    Shape("huggingface_token", ("hf_",), r"(?<!\w)hf_[A-Za-z]{0,4}_?[A-Za-z0-9]{30,40}"),
    Shape("telegram_token", (":AA",), r"(?<=\d{8}):AA[\w-]{32,34}"),
    Shape("jwt", ("eyJ",), r"(?<![\w-])eyJ[\w-]{8,2000}+\.eyJ[\w-]{8,4000}+\.[\w-]{10,2000}"),
    Shape("sendgrid_key", ("SG.",), r"SG\.[\w-]{16,32}\.[\w-]{30,64}"),
    Shape("twilio_key", ("AC", "SK"), r"(?<![A-Za-z0-9])(?:AC|SK)[0-9a-f]{32}(?![0-9a-f])"),
    Shape("digitalocean_token", ("dop_v1_", "doo_v1_"), r"do[op]_v1_[a-f0-9]{64}"),
    Shape("shopify_token", ("shpat_", "shpss_", "shpca_"), r"shp(?:at|ss|ca)_[a-fA-F0-9]{32}"),
    Shape(
        "groq_key",
        ("gsk_", "xai-", "r8_", "pplx-", "tvly-"),
        r"(?<!\w)(?:gsk_|xai-|r8_|pplx-|tvly-)[A-Za-z0-9]{30,100}",
    ),
    Shape("private_key", ("-----BEGIN",), _PEM),
    Shape("bearer_token", ("bearer ", "basic "), r"(?i)(?:bearer|basic) (?P<secret>[\w.~+/-]{16,2000}+=*)", vague=True),
    Shape("url_password", ("://",), r"://[^\s/:@\"'<>]{0,80}:(?P<secret>[^\s/@\"'<>]{3,200})@[\w.\[-]", vague=True),
    Shape(
        "aws_secret_key",
        ("secret_access_key", "secretaccesskey", "aws_secret"),
        r"(?i)(?:aws_)?secret_?(?:access)?_?(?:key)?" + _AWS_ASSIGNED,
        vague=True,
    ),
    Shape(
        "credential_assignment",
        ("key", "token", "secret", "credential"),
        r"(?i)(?:key|token|secret|credentials?)" + _ASSIGNED,
        vague=True,
        qualifier=_QUALIFIED,
    ),
    Shape(
        "password_assignment",
        ("passw", "passphrase", "pwd", "contrase", "mot de passe", "kennwort"),
        _LOGIN_WORD + "(?:" + _ASSIGNED + "|" + _SAID + ")",
        vague=True,
    ),
)


def redact(text: str) -> str:
    """Return `text` with every credential replaced by `[redacted:<rule>]`."""
    spans = sorted(_spans(text), key=lambda span: (span[0], -span[1]))
    if not spans:
        return text
    parts, place = [], 0
    for start, end, rule in spans:
        if start < place:
            continue
        parts += [text[place:start], f"[redacted:{rule}]"]
        place = end
    return "".join([*parts, text[place:]])


def redact_json(value: JSON) -> JSON:
    """Return `value` with `redact` applied to every string in it, keys included."""
    match value:
        case str():
            return redact(value)
        case Mapping():
            return {redact(key): _redact_field(key, item) for key, item in value.items()}
        case Sequence():
            return [redact_json(item) for item in value]
        case _:
            return value


def _redact_field(key: str, value: JSON) -> JSON:
    """Redact a string together with its key: `{"password": "…"}` has the shape of an assignment."""
    if not isinstance(value, str):
        return redact_json(value)
    plain = redact(value)
    if plain == value and "\n" not in value:
        joined = redact(f"{key}: {value}")
        if joined != f"{key}: {value}" and joined.startswith(f"{key}: "):
            return joined.removeprefix(f"{key}: ")
    return plain


def shapes(text: str, vocabulary: str | None = None) -> tuple[tuple[str, bool], ...]:
    """Return the rules whose shape occurs in `text`, and whether the shape alone is proof.

    `vocabulary` holds the lower-cased words of `text`; it is shorter and rules most shapes out quickly.
    """
    lowered = _lower(text)
    words = lowered if vocabulary is None else vocabulary
    found: dict[str, bool] = {}
    for shape, cores in _shape_cores():
        if any(core in words for core in cores) and next(_find(text, lowered, shape), None):
            found[shape.rule] = not shape.vague
    return tuple(found.items())


@cache
def _shape_cores() -> tuple[tuple[Shape, tuple[str, ...]], ...]:
    """Return each shape with the letters that a word must contain for one of its anchors."""
    return tuple((shape, tuple(map(_core, shape.anchors))) for shape in SHAPES)


def _core(anchor: str) -> str:
    return max(re.findall("[a-z0-9]+", anchor.lower()), key=len, default="")


def _spans(text: str) -> Iterator[tuple[int, int, str]]:
    lowered = _lower(text)
    for shape in SHAPES:
        haystack = lowered if shape.vague else text
        # every stored message passes through here, and most contain no anchor at all
        for anchor in shape.anchors:
            if anchor in haystack:
                for start, end in _find(text, lowered, shape):
                    yield start, end, shape.rule
                break


def _lower(text: str) -> str:
    lowered = text.lower()
    # a few letters become longer in lower case, which would shift the positions
    return lowered if len(lowered) == len(text) else text


def _find(text: str, lowered: str, shape: Shape) -> Iterator[tuple[int, int]]:
    """Yield the spans of credentials of one shape; each anchor is tried once, so time is linear."""
    haystack = lowered if shape.vague else text
    match_at = _compile(shape.pattern).match
    for anchor in shape.anchors:
        place = haystack.find(anchor)
        while place >= 0:
            match = match_at(text, place)
            if match is not None and _is_meant(text, shape, match):
                yield _secret_span(match)
            place = haystack.find(anchor, place + len(anchor) if match is None else match.end())


def _is_meant(text: str, shape: Shape, match: re.Match[str]) -> bool:
    """Check the context and the value where the shape alone is no proof."""
    if not shape.vague:
        return True
    if shape.qualifier is not None:
        before = text[max(0, match.start() - 12) : match.start()]
        alone = _BARE if match[0][:3].lower() != "key" else shape.qualifier
        if not (_compile(shape.qualifier).search(before) or _compile(alone).search(before)):
            return False
    start, end = _secret_span(match)
    return _is_secret(text[start:end], rule=shape.rule, said=match.lastgroup == "said")


def _secret_span(match: re.Match[str]) -> tuple[int, int]:
    if match.lastgroup is None:
        return match.span()
    start, _ = match.span(match.lastgroup)
    return start, start + max(1, len(match[match.lastgroup].rstrip(_TAIL)))


@cache
def _compile(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)


def _is_secret(value: str, *, rule: str, said: bool) -> bool:
    """Tell a credential from a word, a number, a placeholder or a piece of code."""
    if _PLACEHOLDER.search(value):
        return False
    digits = any(char.isdigit() for char in value)
    letters = any(char.isalpha() for char in value)
    if rule == "url_password":
        return value not in {"password", "pass", "passwd", "secret", "pwd", "postgres", "user", "root", "token"}
    if rule == "password_assignment":
        odd = any(not char.isalnum() for char in value.rstrip(_TAIL)) or value.lower() != value
        return digits and letters and len(value) > 5 and (odd or not said)
    return digits and letters and len(value) >= _SHORT and _bits(value) >= _ENOUGH_BITS


def _bits(value: str) -> float:
    """Return the entropy of the characters of `value`, in bits per character."""
    size = len(value)
    return -sum(n / size * math.log2(n / size) for n in Counter(value).values())
