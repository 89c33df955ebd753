"""What surrounds the code of plugins in a process: where its output goes, what it may import, what it logs."""

import io
import logging
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_loader
from types import ModuleType
from typing import Any, TextIO

from wellkept.core.plugins import find_running_plugin, running_plugin
from wellkept.providers.hermes import HermesHost, list_names
from wellkept.security.secrets import redact

log = logging.getLogger(__name__)

MAX_LINE_CHARS = 2_000
Complaint = Callable[[str], None]
"""Receives one line that a plugin logged as a warning or an error."""

_lock = threading.RLock()
_complaints: dict[str, Complaint] = {}
_active = 0
"""How many calls of plugin code run in this process now."""


def log_output(plugin: str, text: str) -> None:
    """Write what a plugin printed to the log, line by line, shortened and without credentials."""
    for line in text.splitlines():
        if line.strip():
            log.info("plugin %s printed: %s", plugin, redact(line[:MAX_LINE_CHARS]))


def log_record(plugin: str, record: logging.LogRecord) -> str:
    """Write a record of a plugin's own logger to our log; return the line if it is at least a warning, else nothing."""
    try:
        message = record.getMessage()
    except (TypeError, ValueError):  # the arguments do not fit the text
        message = str(record.msg)
    line = redact(" ".join(message.split())[:MAX_LINE_CHARS])
    log.log(record.levelno, "plugin %s: %s: %s", plugin, record.name, line, exc_info=record.exc_info)
    is_trouble = record.levelno >= logging.WARNING and record.name != "py.warnings"
    return line if is_trouble else ""


class _Router(io.TextIOBase):
    """A standard stream while plugin code runs: what plugins write goes to the log, the rest where it belongs."""

    def __init__(self, target: TextIO) -> None:
        self.target = target

    def write(self, text: str) -> int:
        plugin = find_running_plugin()
        if plugin is None:
            return self.target.write(text)
        log_output(plugin, text)
        return len(text)

    def flush(self) -> None:
        self.target.flush()

    def isatty(self) -> bool:
        return self.target.isatty()

    def fileno(self) -> int:
        return self.target.fileno()

    @property
    def encoding(self) -> str:  # type: ignore[override] # read-only here: it is that of the target
        return self.target.encoding

    @property
    def buffer(self) -> object:
        """Return the bytes beneath, which programs use for binary output."""
        return self.target.buffer


class _Listener(logging.Handler):
    """Passes the records of plugins on, also those of their threads.

    Records of kept itself reach the root logger only if no app is open; passing them on would never end.
    """

    def emit(self, record: logging.LogRecord) -> None:
        if record.name.startswith("wellkept."):
            return
        plugin = find_running_plugin()
        if plugin is None:
            last = logging.lastResort  # what Python would use without this handler
            if last is not None and record.levelno >= last.level and logging.getLogger().handlers == [self]:
                last.handle(record)
            return
        line = log_record(plugin, record)
        if line and plugin in _complaints:
            _complaints[plugin](line)


_listener = _Listener()


@contextmanager
def plugin_code(plugin: str) -> Iterator[None]:
    """Run code of `plugin` in the block; redirect its output and its log, and answer its imports."""
    global _active
    with _lock:
        _active += 1
        if _active == 1:
            sys.stdout, sys.stderr = _route(sys.stdout), _route(sys.stderr)
    try:
        with running_plugin(plugin):
            yield
    finally:
        with _lock:
            _active -= 1
            if _active == 0:
                # code that replaced the stream meanwhile restores it itself
                if isinstance(sys.stdout, _Router):
                    sys.stdout = sys.stdout.target
                if isinstance(sys.stderr, _Router):
                    sys.stderr = sys.stderr.target
                names.withdraw()


def _route(stream: Any) -> Any:
    return stream if stream is None or isinstance(stream, _Router) else _Router(stream)


def listen(plugin: str, complaint: Complaint) -> None:
    """Call `complaint` with every line that `plugin` logs as a warning or an error in this process."""
    _complaints[plugin] = complaint
    root = logging.getLogger()
    if _listener not in root.handlers:
        root.addHandler(_listener)


class HermesNames(MetaPathFinder, Loader):
    """The last finder of imports: answers plugin code for the names of Hermes that nothing else provides.

    Modules are taken out of `sys.modules` when no plugin code runs, so that the rest of the process never sees them;
    they are kept here, so that a class is the same object whenever it is imported.
    """

    def __init__(self) -> None:
        self._hosts: list[HermesHost] = []
        self._modules: dict[str, ModuleType] = {}
        self._specs: dict[str, ModuleSpec | None] = {}

    def offer(self, host: HermesHost) -> None:
        """Answer for the plugin of `host` from now on."""
        with _lock:
            self._hosts = [*(each for each in self._hosts if each.provider != host.provider), host]
            self._modules = self._modules or self._build()
            if self not in sys.meta_path:
                sys.meta_path.append(self)

    def withdraw(self) -> None:
        """Remove the modules from `sys.modules`."""
        # by our own names: other threads import meanwhile, so nobody can walk through all modules
        for name in {*self._modules, *self._specs}:
            module = sys.modules.get(name)
            if module is not None and (self._modules.get(name) is module or name in self._specs):
                del sys.modules[name]

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the module, if plugin code asks and a name fits."""
        del path, target
        if fullname not in self._modules and self._find_own(fullname) is None:
            return None
        return None if find_running_plugin() is None else spec_from_loader(fullname, self, is_package=True)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Return the module; for the plugin's own folder the one that it is already."""
        own = self._find_own(spec.name)
        if own is None:
            return self._modules[spec.name]
        module = import_module(own)
        self._specs[spec.name] = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Restore the identity of the plugin's own module, which the import system has just overwritten."""
        for spec in self._specs.values():
            if spec is not None and spec.name == module.__name__:
                module.__spec__ = spec

    def _find_own(self, name: str) -> str | None:
        """Return the real name of `plugins.memory.NAME[.SUBMODULE]`, None for every other module."""
        head, _, rest = name.removeprefix("plugins.memory.").partition(".")
        if head == name or not self._hosts or name in self._modules:
            return None
        host = self._host()
        if not host.package or head not in host.names:
            return None
        return f"{host.package}.{rest}" if rest else host.package

    def _host(self) -> HermesHost:
        plugin = find_running_plugin()
        for host in self._hosts:
            if plugin in {host.provider, *host.names}:
                return host
        return self._hosts[-1]

    def _build(self) -> dict[str, ModuleType]:
        modules: dict[str, ModuleType] = {}
        for name, values in list_names(self._host).items():
            parts = name.split(".")
            for end in range(1, len(parts) + 1):
                modules.setdefault(".".join(parts[:end]), ModuleType(".".join(parts[:end]), "Offered by kept."))
            vars(modules[name]).update(values)
        for module in modules.values():
            module.__path__ = []
        return modules


names = HermesNames()
"""The finder of this process."""
