"""The shapes that credentials have."""

from dataclasses import dataclass

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
    """How one kind of credential looks, and the literals it cannot do without."""

    rule: str
    anchors: tuple[str, ...]
    pattern: str
    vague: bool = False
    """The shape needs its value judged, because prose and code can look alike; case is ignored."""
    qualifier: str | None = None
    """What the words just before must end with, so that a bare `key = …` is not meant."""


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
