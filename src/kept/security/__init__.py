"""What keeps hostile text, secrets and paths from doing harm."""

from kept.security.paths import inside
from kept.security.scan import Finding, Scope, Severity, Verdict, scan
from kept.security.secrets import redact, redact_json

__all__ = [
    "Finding",
    "Scope",
    "Severity",
    "Verdict",
    "inside",
    "redact",
    "redact_json",
    "scan",
]
