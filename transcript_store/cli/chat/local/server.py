"""llama.cpp's HTTP server on a loopback address, in a process of its own that ends with this one."""

from __future__ import annotations

import importlib.util
import json
import secrets
import subprocess
import sys
from contextlib import suppress
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Self
from urllib.parse import urlsplit

from transcript_store.cli.chat.local import Model, process
from transcript_store.cli.chat.local.weights import LocalModelError
from transcript_store.errors import MissingExtraError

CONTEXT_TOKENS = 8192
"""What the smallest of the models was trained for."""

_TEMPLATE = """\
{%% if messages[0].role != 'system' %%}<|im_start|>system
%s<|im_end|>
{%% endif %%}\
{%% for message in messages %%}<|im_start|>{{ message.role }}
{{ message.content }}<|im_end|>
{%% endfor %%}\
{%% if add_generation_prompt %%}<|im_start|>assistant
{%% endif %%}"""
"""ChatML, the form in which all of them were trained, with our prompt where theirs stands for a conversation without one."""

_PATIENCE_SECONDS = 5.0
_LOG = "llama.cpp.log"


class LocalServer:
    """Serves a model, whose weights are at ``path``, from construction until ``close()``, or until this process ends, however it ends.

    ``base_url`` and ``token`` are for a client; the token is a new random one, since others can reach a loopback address
    too. What the server logs is in ``llama.cpp.log`` beside the weights. Raises ``MissingExtraError`` without
    ``xllamacpp`` and ``LocalModelError`` if it does not come up.
    """

    def __init__(self, model: Model, path: Path) -> None:
        if importlib.util.find_spec("xllamacpp") is None:
            raise MissingExtraError(provider="local", extra="local")
        self.token = secrets.token_hex(16)
        log = path.with_name(_LOG)
        with log.open("wb") as complaints:
            self._process = subprocess.Popen(  # noqa: S603 (ourselves)
                [sys.executable, "-P", process.__file__],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=complaints,
                start_new_session=True,  # Ctrl-C is for an answer, not for the one who gives it
            )
        try:
            self._address = self._started(model, path, log)
        except BaseException:
            self.close()
            raise

    def _started(self, model: Model, path: Path, log: Path) -> str:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        settings = {
            "model": str(path),
            "name": model.name,
            "token": self.token,
            "context_tokens": CONTEXT_TOKENS,
            "template": _TEMPLATE % model.prompt,
            "sampling": dict(model.sampling),
        }
        with suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps(settings).encode() + b"\n")
            self._process.stdin.flush()
        address = self._process.stdout.readline().decode().strip()
        if not address:
            raise LocalModelError(f"the local model's server did not start; {log} says why")
        return address

    @property
    def base_url(self) -> str:
        """For an OpenAI-compatible client."""
        return f"{self._address}/v1"

    @property
    def is_running(self) -> bool:
        """Whether it can still answer; somebody may have ended it, or the machine may have had no memory left."""
        return self._process.poll() is None

    def count_tokens(self, text: str) -> int:
        """How many tokens the model takes for a text. Raises ``LocalModelError`` if the server does not answer."""
        connection = HTTPConnection(urlsplit(self._address).netloc, timeout=30)
        body = json.dumps({"content": text, "parse_special": True})
        try:
            connection.request("POST", "/tokenize", body, {"Authorization": f"Bearer {self.token}"})
            return len(json.load(connection.getresponse())["tokens"])
        except (OSError, HTTPException, ValueError, KeyError) as error:
            raise LocalModelError(f"the local model's server does not answer ({type(error).__name__})") from error
        finally:
            connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the server; closing twice does nothing."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with suppress(OSError):
            self._process.stdin.close()
        self._process.stdout.close()
        try:
            self._process.wait(_PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
