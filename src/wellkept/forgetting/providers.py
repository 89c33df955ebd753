"""Forgetting in external memories: those in use, and those that were used before."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from msgspec import Struct, field

from wellkept.core.errors import KeptError
from wellkept.providers.base import ForgetRequest
from wellkept.providers.forgetting import ForgetAnswer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from wellkept.app.caller import Caller
    from wellkept.providers.manager import ProviderManager

_LOCAL = {"holographic": "holographic.db", "mem0": "mem0"}
"""Providers that keep their data in the home, with its file or folder: they are called even if unused."""


class _Opened(Struct):
    """The providers that could be loaded, and why others could not."""

    manager: ProviderManager
    missing: list[ForgetAnswer] = field(default_factory=list)


def list_providers(caller: Caller) -> list[str]:
    """Return the providers that may hold something of the user."""
    from wellkept.providers.manager import chosen_names

    app = caller.app
    told = [lane.provider for lane in caller.space.outbox.lanes() if lane.delivered]
    local = [name for name, file in _LOCAL.items() if (app.home.path / file).exists()]
    return list(dict.fromkeys([*chosen_names(app.settings.memory.provider, app.home.plugins), *told, *local]))


def find_at_providers(caller: Caller, request: ForgetRequest) -> list[ForgetAnswer]:
    """Ask every provider whether it holds what `request` selects; nothing is deleted."""
    with _open(caller) as opened:
        return [*opened.manager.forget(request, only_find=True), *opened.missing] if opened else []


def forget_at_providers(caller: Caller, request: ForgetRequest) -> list[ForgetAnswer]:
    """Tell every provider to delete what `request` selects, and ask whether it did."""
    with _open(caller) as opened:
        return [*opened.manager.forget(request), *opened.missing] if opened else []


@contextmanager
def _open(caller: Caller) -> Iterator[_Opened | None]:
    names = list_providers(caller)
    if not names:
        yield None
        return
    from wellkept.providers.active import ManagerContext
    from wellkept.providers.base import StartContext
    from wellkept.providers.loading import load
    from wellkept.providers.manager import ProviderManager

    app, source = caller.app, caller.app.plugin_source()
    # outside the primary context and without a ledger, the manager mirrors and delivers nothing
    start = StartContext(
        kept_home=str(app.home.path), agent_context="flush", agent_identity=app.home.profile, user_id=caller.user
    )
    context = ManagerContext(start=start, clock=app.clock, sink=caller.space.listeners, several=True)
    opened = _Opened(ProviderManager(caller.database, context=context, settings=app.settings.providers))
    for name in names:
        try:
            opened.manager.register(load(name, source.plugins, source.environ, source.policy), name=name)
        except KeptError as error:
            opened.missing.append(ForgetAnswer(name, problem=f"it cannot be loaded: {error.message}"))
    try:
        yield opened
    finally:
        opened.manager.close()
