"""What a shell completes besides the names of commands: settings, profiles, scanner rules."""

import os


def typed() -> list[str] | None:
    """Return the words that a shell asks to have completed, None when this is no completion."""
    if "_KEPT_COMPLETE" not in os.environ:
        return None
    line = os.environ.get("COMP_WORDS") or os.environ.get("_TYPER_COMPLETE_ARGS") or ""
    return line.split()[1:]


def settings(incomplete: str) -> list[str]:
    """Return the settings that begin like this."""
    from kept.config.settings import known_keys

    return [key for key in known_keys() if key.startswith(incomplete)]


def profiles(incomplete: str) -> list[str]:
    """Return the profiles that begin like this."""
    from kept.config.home import DEFAULT_PROFILE, find_home

    folder = find_home(None, DEFAULT_PROFILE, os.environ).root / "profiles"
    names = [DEFAULT_PROFILE, *sorted(path.name for path in folder.glob("*") if path.is_dir())]
    return [name for name in names if name.startswith(incomplete)]


def rules(incomplete: str) -> list[str]:
    """Return the scanner's rules that begin like this."""
    from kept.security.scan import rule_ids

    return sorted(rule for rule in rule_ids() if rule.startswith(incomplete))
