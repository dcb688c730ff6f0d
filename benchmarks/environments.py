"""A virtual environment for each peer: some of them drag dependencies back that others need newer."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path


class NotInstallableError(Exception):
    """pip could not install it here."""


def default_folder() -> Path:
    """Where environments are kept from one run to the next: the user's cache."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "transcript-store" / "benchmarks"


def interpreter(folder: Path, requirements: tuple[str, ...]) -> Path:
    """The Python of an environment that holds these; made when it is not there. Raises ``NotInstallableError``."""
    if not requirements:
        return Path(sys.executable)
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    key = hashlib.sha256("\n".join((*requirements, version)).encode()).hexdigest()[:8]
    name = requirements[0].partition("=")[0].partition("[")[0]
    environment = folder / f"{name}-{key}"
    python = environment / "bin" / "python"
    complete = environment / "complete"
    if not complete.exists():
        _make(environment, requirements)
        complete.touch()
    return python


def _make(environment: Path, requirements: tuple[str, ...]) -> None:
    shutil.rmtree(environment, ignore_errors=True)
    try:
        _run([sys.executable, "-m", "venv", str(environment)])
        _run([str(environment / "bin" / "python"), "-m", "pip", "install", "--quiet", *requirements])
    except BaseException:
        shutil.rmtree(environment, ignore_errors=True)
        raise


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        why = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
        raise NotInstallableError(why[-1] if why else done.stderr[-300:])
