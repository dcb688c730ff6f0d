"""How was this package installed, and which command adds an extra to that installation?

The package may not be in any registry under its name. So ``pip install 'transcript-store[aio]'`` works only where that
command installed it. Installers record what they installed from (``direct_url.json``, PEP 610): this reads it.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import sys
from importlib.metadata import Distribution, PackageNotFoundError
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

_NAME = "transcript-store"
_SOURCES = Path(__file__).parent.parent


def install_command(*extras: str) -> str:
    """The line for a shell that installs these extras into this Python, whatever this package was installed from.

    An existing clone, folder or wheel is named by its path, a repository or a download by its URL, an index by the
    package's name. If the source no longer exists, the line names the packages that the extras need.
    """
    try:
        distribution: Distribution | None = Distribution.from_name(_NAME)
    except PackageNotFoundError:  # a clone on PYTHONPATH
        distribution = None
    return f"{_installer(distribution)} {' '.join(map(shlex.quote, _requirements(distribution, ','.join(extras))))}"


def _installer(distribution: Distribution | None) -> str:
    if distribution is not None and (distribution.read_text("INSTALLER") or "").strip() == "uv":
        return f"uv pip install --python {shlex.quote(sys.executable)}"  # its environments have no pip
    pip = shutil.which("pip")
    if pip is not None and Path(pip).parent == Path(sys.executable).parent:
        return "pip install"
    return f"{shlex.quote(sys.executable)} -m pip install"  # the pip on PATH, if any, is another Python's


def _requirements(distribution: Distribution | None, extras: str) -> list[str]:
    if distribution is None:
        if (_SOURCES / "pyproject.toml").is_file():
            return ["-e", f"{_SOURCES}[{extras}]"]
        return [f"{_NAME}[{extras}]"]
    origin = _origin(distribution)
    if origin is None:
        return [f"{_NAME}[{extras}]"]
    url = urlsplit(origin["url"])
    if "vcs_info" in origin:
        vcs = origin["vcs_info"]
        return [f"{_NAME}[{extras}] @ {vcs['vcs']}+{origin['url']}@{vcs['commit_id']}"]
    if url.scheme in ("http", "https"):
        return [f"{_NAME}[{extras}] @ {origin['url']}"]
    path = unquote(url.path)
    if url.scheme == "file" and os.path.exists(path):
        return [*(["-e"] if origin.get("dir_info", {}).get("editable") else []), f"{path}[{extras}]"]
    return [*_packages_of(distribution, extras.split(","))] or [f"{_NAME}[{extras}]"]


def _origin(distribution: Distribution) -> dict[str, Any] | None:
    """What ``direct_url.json`` says; None if there is none, as after an install from an index, or nothing usable."""
    try:
        origin = json.loads(distribution.read_text("direct_url.json") or "null")
    except ValueError:
        return None
    return origin if isinstance(origin, dict) and isinstance(origin.get("url"), str) else None


def _packages_of(distribution: Distribution, extras: list[str]) -> list[str]:
    """What these extras require beside the package itself, with the extras that they name in turn."""
    wanted, packages = list(extras), []
    for extra in wanted:  # grows meanwhile
        for line in distribution.requires or ():
            requirement, _, marker = line.partition(";")
            if f'extra == "{extra}"' not in marker.replace("'", '"'):
                continue
            if requirement.startswith(_NAME):
                wanted += [
                    name for name in requirement.partition("[")[2].partition("]")[0].split(",") if name not in wanted
                ]
            else:
                packages.append(requirement.strip())
    return packages
