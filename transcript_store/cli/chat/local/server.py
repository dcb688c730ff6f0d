"""llama.cpp's HTTP server on a loopback address, in a process of its own, which ends with this one."""

from __future__ import annotations

import importlib.util
import json
import secrets
import subprocess
import sys
from bisect import bisect_left
from collections.abc import Callable, Sequence
from contextlib import suppress
from http.client import HTTPConnection, HTTPException
from itertools import accumulate
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

from transcript_store.cli.chat.local import Model, process
from transcript_store.cli.chat.local.weights import LocalModelError
from transcript_store.errors import MissingExtraError

CONTEXT_TOKENS = 8192
"""The context for which the smallest of the models was trained."""

_TEMPLATE = """\
{%% if messages[0].role != 'system' %%}<|im_start|>system
%s<|im_end|>
{%% endif %%}\
{%% for message in messages %%}<|im_start|>{{ message.role }}
{{ message.content }}<|im_end|>
{%% endfor %%}\
{%% if add_generation_prompt %%}<|im_start|>assistant
{%% endif %%}"""
"""ChatML, with which all the models were trained. A conversation without a system prompt gets ours instead of theirs."""

_PATIENCE_SECONDS = 5.0
_LOG = "llama.cpp.log"


class LocalServer:
    """Serves the model whose weights are at ``path``, from construction until ``close()``.

    The server also ends with this process, even if this process is killed. ``base_url`` and ``token`` are for a client. The
    token is random and new, because other users of this machine can reach a loopback address too. The server's log is
    ``llama.cpp.log`` beside the weights.

    Raises:
        MissingExtraError: ``xllamacpp`` is not installed; the extra ``local`` installs it.
        LocalModelError: the server did not start; its log says why.
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
                start_new_session=True,  # so that Ctrl-C at the terminal stops an answer and does not end the server
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
        with suppress(BrokenPipeError):  # it has ended already: the missing address is reported below
            self._process.stdin.write(json.dumps(settings).encode() + b"\n")
            self._process.stdin.flush()
        address = self._process.stdout.readline().decode().strip()
        if not address:
            raise LocalModelError(f"the local model's server did not start; {log} says why")
        return address

    @property
    def base_url(self) -> str:
        """The base URL for an OpenAI-compatible client."""
        return f"{self._address}/v1"

    @property
    def is_running(self) -> bool:
        """True if the server process still runs. It may have been killed, or the machine ran out of memory."""
        return self._process.poll() is None

    def count_tokens(self, text: str) -> int:
        """How many tokens a text has for this model.

        Raises:
            LocalModelError: the server does not answer.
        """
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
        """End the server. A second call does nothing."""
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


# ---- context ----
#
# Choose the turns of a long conversation that a request carries: the newest that fit into the model's context.

Message = dict[str, Any]

_FEWEST_TOKENS = 5
"""The fewest tokens that a message can take: those that the chat template adds to it."""
_MOST_BYTES_A_TOKEN = 8
"""The most bytes a token may have on average. Messages that would need more are left out without being counted.

Else a very long conversation would be sent to the server whole, only for its tokens to be counted.
"""


def rendered(messages: Sequence[Message]) -> str:
    """The messages in the model's template (ChatML), so that their tokens can be counted."""
    return "".join(f"<|im_start|>{message.get('role')}\n{_text(message)}<|im_end|>\n" for message in messages)


def newest_turns(
    messages: Sequence[Message], *, budget_tokens: int, count_tokens: Callable[[str], int]
) -> list[Message] | None:
    """The newest turns that together take at most ``budget_tokens``; None if the last turn alone takes more.

    A turn begins with a message of the user. Messages before the first such message belong to no turn, and are left out
    first. ``count_tokens`` counts exactly. It is not called for a conversation that is short enough in any case.
    """
    newest = len(messages) - budget_tokens // _FEWEST_TOKENS
    lengths = [len(rendered([message]).encode("utf-8", "replace")) for message in messages[max(0, newest) :]]
    if newest <= 0 and sum(lengths) <= budget_tokens:
        return list(messages)  # a token has at least one byte, so no more tokens than bytes
    room = bisect_left(list(accumulate(reversed(lengths))), budget_tokens * _MOST_BYTES_A_TOKEN)
    first = len(messages) - max(room, 1)
    starts = sorted({0, *(place for place, message in enumerate(messages) if message.get("role") == "user")})
    starts = [place for place in starts if place >= first] or starts[-1:]
    # The later a request starts, the fewer tokens it takes: a binary search counts only a few of the possible starts.
    fits = bisect_left(starts, True, key=lambda place: count_tokens(rendered(messages[place:])) <= budget_tokens)
    return list(messages[starts[fits] :]) if fits < len(starts) else None


def _text(message: Message) -> str:
    content = message.get("content")
    rest = {name: value for name, value in message.items() if name not in ("role", "content") and value}
    text = content if isinstance(content, str) else json.dumps(content, ensure_ascii=False) if content else ""
    return text + (json.dumps(rest, ensure_ascii=False) if rest else "")
