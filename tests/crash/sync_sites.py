"""Where in the source a sync is asked for.

A sync is known by the function and line that asked for it, so a new one is found without being listed. On the real kernel
each is announced by a harmless system call just before it, so that a trace shows it too.
"""

from __future__ import annotations

import ast
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

import transcript_store
from transcript_store.testing import SimulatedFileSystem

PACKAGE = Path(transcript_store.__file__).parent
PASSES_ON = {
    ("_os.directory", "sync"),
    ("_os.directory", "sync_to_copy"),
    ("_os.directory", "sync_all"),
    ("_log.log", "_sync"),
    ("_log.log", "sync"),
}
"""Functions that only sync: what matters is who calls them."""
_ANNOUNCED = "/sync asked for by/"


class Site(NamedTuple):
    """From where a sync is asked for."""

    module: str
    function: str
    line: int


def site() -> Site:
    """Who asks for the sync that is being made."""
    frame = sys._getframe(1)
    while frame is not None:
        path = Path(frame.f_code.co_filename)
        if path.is_relative_to(PACKAGE):
            module = _dotted(path)
            if _is_of_the_store(module) and (module, frame.f_code.co_name) not in PASSES_ON:
                return Site(module, frame.f_code.co_name, frame.f_lineno)
        assert frame.f_back is not None
        frame = frame.f_back
    raise AssertionError("a sync from nowhere")


def in_the_source(*, in_backends: bool = False) -> set[tuple[str, int]]:
    """Every call of a sync in the package, as module and line: of the core, or of ``backends``, which the core stands without."""
    found = set()
    for path in PACKAGE.rglob("*.py"):
        module = _dotted(path)
        if not _is_of_the_store(module) or module.startswith("backends.") != in_backends:
            continue
        tree = ast.parse(path.read_text())
        for function in ast.walk(tree):
            if isinstance(function, ast.FunctionDef) and (module, function.name) not in PASSES_ON:
                for call in ast.walk(function):
                    if isinstance(call, ast.Call) and _is_sync(call):
                        found.add((module, call.lineno))
    return found


def _dotted(path: Path) -> str:
    """A module of the package, without the package's name."""
    return ".".join(path.relative_to(PACKAGE).with_suffix("").parts)


_NOT_OF_A_STORE = ("_os.filesystem", "_sealing.keys")
"""The machine itself, and a file that is made once and read back by whoever made it."""


def _is_of_the_store(module: str) -> bool:
    """Not those of the machines that make syncs, of the programs around a store, or of ``doctor``, which throws its files away."""
    return module.partition(".")[0] not in ("testing", "chat", "cli", "_doctor") and module not in _NOT_OF_A_STORE


def _is_sync(call: ast.Call) -> bool:
    names = ("sync", "_sync", "sync_data", "sync_to_copy", "sync_all")
    return isinstance(call.func, ast.Attribute) and call.func.attr in names


def syncing(patch: pytest.MonkeyPatch, do: Callable[[Site], bool]) -> None:
    """Let every sync on the simulated disk happen only if ``do`` says so of its site."""
    for name in ("sync", "sync_data", "sync_all"):
        real = getattr(SimulatedFileSystem, name)

        def maybe(self: SimulatedFileSystem, handle: int, real: Callable[..., None] = real) -> None:
            if do(site()):
                real(self, handle)

        patch.setattr(SimulatedFileSystem, name, maybe)


def announce() -> None:
    """Leave the site of the sync that is being made in the trace: a question for a path that is not there."""
    os.access(_ANNOUNCED + "/".join(map(str, site())), os.F_OK)


def announced(path: bytes) -> Site | None:
    """The site that such a question names; None for any other path."""
    text = path.decode(errors="replace")
    if not text.startswith(_ANNOUNCED):
        return None
    module, function, line = text.removeprefix(_ANNOUNCED).split("/")
    return Site(module, function, int(line))
