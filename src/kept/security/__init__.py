"""What keeps hostile text, secrets and paths from doing harm."""

from kept.security.fence import build_memory_context_block, sanitize_context
from kept.security.paths import inside
from kept.security.scan import Finding, Scope, Severity, Verdict, scan
from kept.security.scrub import StreamingContextScrubber
from kept.security.secrets import redact, redact_json

__all__ = [
    "Finding",
    "Scope",
    "Severity",
    "StreamingContextScrubber",
    "Verdict",
    "build_memory_context_block",
    "inside",
    "redact",
    "redact_json",
    "sanitize_context",
    "scan",
]
