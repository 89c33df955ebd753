"""The adapter for a GGUF file that runs in this process through llama.cpp."""

import asyncio
import os
import secrets
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from wellkept.core.errors import ModelRefused
from wellkept.core.installation import name_install
from wellkept.core.messages import ChatRequest, Delta
from wellkept.llm.endpoints import Endpoint, Sending
from wellkept.llm.openai import Answer, build_body
from wellkept.llm.sdk import Failure, as_error, calls_so_far, empty_answer_error, interrupted_error

DEFAULT_CONTEXT_LENGTH = 8_192
"""The context window to allocate unless `model.context_length` is set."""


class LocalModel:
    """A model from a local file, loaded on first use."""

    def __init__(self, path: Path, *, context_length: int = DEFAULT_CONTEXT_LENGTH, sending: Sending) -> None:
        self.name = f"local/{path}"
        self.context_length = context_length
        self._path = path
        self._sending = sending
        self._server: Any = None
        self._lock = threading.Lock()

    async def stream(self, request: ChatRequest) -> AsyncIterator[Delta]:
        """Generate in a thread; closing the iterator stops it at the next token."""
        loop = asyncio.get_running_loop()
        chunks: asyncio.Queue[Any] = asyncio.Queue()
        stopped = threading.Event()

        def receive(chunk: Any) -> bool:
            if not stopped.is_set():
                loop.call_soon_threadsafe(chunks.put_nowait, chunk)
            return stopped.is_set()

        working = loop.run_in_executor(None, self._generate, request, receive)
        working.add_done_callback(lambda _: chunks.put_nowait(None))
        answer = Answer()
        try:
            while (chunk := await chunks.get()) is not None:
                error = chunk.get("error") if isinstance(chunk, dict) else None
                if isinstance(error, dict):
                    kinds = frozenset({str(error.get("type"))})
                    failure = Failure(error.get("code"), kinds, str(error.get("message")))
                    raise as_error(failure, self._endpoint, model=self.name)
                for delta in answer.take(chunk):
                    yield delta
        finally:
            stopped.set()
            await asyncio.shield(working)
        if answer.is_empty:
            raise empty_answer_error(self._endpoint)
        if answer.finish is None:
            raise interrupted_error(self._endpoint, reason="generation ended early")
        yield answer.response(model=self.name, first_call=calls_so_far(request))

    @property
    def _endpoint(self) -> Endpoint:
        return Endpoint("local", f"file://localhost{self._path}")

    def _generate(self, request: ChatRequest, receive: Any) -> None:
        wired = build_body(request, model=self._path.name, sending=self._sending, vendor=False, as_parts=False)
        try:
            self._load_once().handle_chat_completions(wired, receive)
        except (ValueError, RuntimeError) as error:
            raise as_error(Failure(400, message=str(error)), self._endpoint, model=self.name) from error

    def _load_once(self) -> Any:
        with self._lock:
            if self._server is None:
                self._server = self._load()
            return self._server

    def _load(self) -> Any:
        try:
            import xllamacpp
        except ImportError:
            raise ModelRefused("running a GGUF file needs xllamacpp", name_install("local")) from None
        if not self._path.is_file():
            raise ModelRefused(f"there is no GGUF file at {str(self._path)!r}", "check `model.local_path`")
        parameters = xllamacpp.CommonParams()
        parameters.model.path = str(self._path)
        parameters.n_ctx = self.context_length
        parameters.n_parallel = 1
        parameters.cpuparams.n_threads = os.cpu_count() or 1
        parameters.warmup = False
        parameters.verbosity = -1
        # the library also listens on a loopback port, so a random key keeps other users of this machine out
        parameters.api_keys = [secrets.token_urlsafe(32)]
        try:
            return xllamacpp.Server(parameters)
        except (ValueError, RuntimeError) as error:
            raise ModelRefused(
                f"{self._path.name!r} cannot be loaded: {error}", "check that it is a GGUF file"
            ) from error
