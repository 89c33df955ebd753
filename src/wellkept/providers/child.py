"""The process of one plugin: loads it, runs its hooks and commands, and reports what it logs.

Started by `isolation.py` with the descriptor of its socket. Standard input is empty, standard output and error are a
socket that the parent writes to the log; nothing that the plugin prints can get into the protocol.
"""

import inspect
import logging
import os
import socket
import sys
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from wellkept.core.agency import mark_process
from wellkept.core.plugins import running_plugin
from wellkept.providers.base import MemoryProvider
from wellkept.providers.config import declared_fields
from wellkept.providers.hooks import call_directly, overrides
from wellkept.providers.isolation import Peer
from wellkept.providers.plugins import Found

HOOKS = (
    *(name for name, value in vars(MemoryProvider).items() if inspect.isfunction(value)),
    "post_setup",
)
"""Every hook of the port, and the set-up dialogue that plugins for Hermes may have."""


class Child:
    """Serves the calls of the parent."""

    def __init__(self, connection: socket.socket) -> None:
        self._peer = Peer(connection, self._serve, name="kept-plugin")
        self._name = ""
        self._provider: MemoryProvider | None = None

    def run(self) -> None:
        """Serve until the parent closes the connection, then end at once, whatever threads the plugin has."""
        self._peer.start()
        self._peer.ended.wait()
        os._exit(0)

    def _serve(self, method: str, params: Any) -> Any:
        match method:
            case "load":
                return self._load(params)
            case "call":
                return self._call(params)
            case "command":
                name, words = params
                assert self._provider is not None
                with running_plugin(self._name):
                    command = next(each for each in self._provider.get_commands() if each.name == name)
                    return command.run(words)
            case "set_variables":
                return os.environ.update(params)
            case _:
                raise ValueError(f"there is no method {method!r}")

    def _load(self, params: Mapping[str, Any]) -> Mapping[str, Any]:
        from wellkept.providers.loading import Facts, import_provider

        self._name = params["name"]
        logging.getLogger().addHandler(_Forwarder(self._peer, self._name))
        logging.getLogger().setLevel(logging.INFO)
        logging.captureWarnings(capture=True)
        sys.path[:] = params["path"]
        found = Found(params["name"], params["kind"], params["place"], params["alias"])
        facts = Facts(
            home=Path(params["home"]),
            profile=params["profile"],
            profiles=tuple(params["profiles"]),
            complete=lambda messages, tokens: str(self._ask("complete", [list(messages), tokens])),
            choose=lambda name: self._ask("choose", name),
        )
        os.environ.update(params["variables"])
        os.environ["HERMES_HOME"] = params["home"]  # an installed Hermes looks for its home here, also while it loads
        with running_plugin(self._name):
            loaded = import_provider(found, facts)
            self._provider = loaded.provider
            fields = [field.env_var for field in declared_fields(loaded.provider) if field.env_var]
        offered = [hook for hook in HOOKS if overrides(self._provider, hook)]
        return {
            "name": self._provider.name,
            "hooks": offered,
            "is_hermes": loaded.is_hermes,
            "notes": list(loaded.notes),
            "variables": fields,
        }

    def _ask(self, method: str, params: Any) -> Any:
        return self._peer.call(method, params, seconds=600.0)

    def _call(self, params: Any) -> Any:
        hook, args, keywords = params
        assert self._provider is not None
        with running_plugin(self._name):
            answer = call_directly(self._provider, hook, tuple(args), keywords)
            if hook == "get_commands":
                return [{"name": each.name, "summary": each.summary} for each in answer]
            if hook == "get_config_schema":
                return [_without_objects(each) for each in answer if isinstance(each, Mapping)]
            return answer


def _without_objects(question: Mapping[str, Any]) -> dict[str, Any]:
    """Leave out what only Python can carry: the annotation of a setting; the plugin checks its answers itself."""
    return {key: value for key, value in question.items() if isinstance(value, str | int | float | list | Mapping)}


class _Forwarder(logging.Handler):
    """Reports the records of all loggers in this process to the parent, which writes them to its log."""

    def __init__(self, peer: Peer, name: str) -> None:
        super().__init__()
        self._peer = peer
        self._name = name

    def emit(self, record: logging.LogRecord) -> None:
        """Report one record; the text of an exception is part of it."""
        if record.name.startswith("wellkept."):
            return
        trace = "".join(traceback.format_exception(*record.exc_info)) if record.exc_info else ""
        try:
            message = record.getMessage()
        except (TypeError, ValueError):  # the arguments do not fit the text
            message = str(record.msg)
        self._peer.notify("log", [record.levelno, record.name, message, trace])


def main() -> None:
    """Run the process; the last argument is the descriptor of the socket."""
    mark_process(os.getpid())  # a plugin may start programs that outlive it
    connection = socket.socket(fileno=int(sys.argv[1]))
    connection.set_inheritable(False)  # programs that the plugin starts do not get it
    Child(connection).run()


if __name__ == "__main__":
    main()
