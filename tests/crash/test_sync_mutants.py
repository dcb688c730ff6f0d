"""P5: every sync in the code is needed. Each one is turned into a no-op, alone, and the power cuts must object.

A sync is known by the functions that asked for it, so a new one is found without being listed. That all of them are
reached is checked against the source.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

import transcript_store
from tests.crash import enumeration, snapshot_stores
from tests.crash.operations import CASES, REPAIRS, Case
from transcript_store.testing import SimulatedFileSystem

PACKAGE = Path(transcript_store.__file__).parent
PASSES_ON = {("_folder", "sync"), ("_log", "_sync"), ("_log", "sync")}
"""Functions that only sync: what matters is who calls them."""

Site = tuple[str, str, int]
"""Module, function and line from which a sync is asked for."""


def site() -> Site:
    """Who asks for the sync that is being made."""
    frame = sys._getframe(1)
    while frame is not None:
        path = Path(frame.f_code.co_filename)
        if path.parent == PACKAGE and (path.stem, frame.f_code.co_name) not in PASSES_ON:
            return path.stem, frame.f_code.co_name, frame.f_lineno
        assert frame.f_back is not None
        frame = frame.f_back
    raise AssertionError("a sync from nowhere")


def sites_in_the_source() -> set[tuple[str, int]]:
    """Every call of a sync in the package, as module and line."""
    found = set()
    for path in PACKAGE.glob("*.py"):
        tree = ast.parse(path.read_text())
        for function in ast.walk(tree):
            if isinstance(function, ast.FunctionDef) and (path.stem, function.name) not in PASSES_ON:
                for call in ast.walk(function):
                    if isinstance(call, ast.Call) and _is_sync(call):
                        found.add((path.stem, call.lineno))
    return found


def _is_sync(call: ast.Call) -> bool:
    names = ("sync", "_sync", "sync_data")
    return isinstance(call.func, ast.Attribute) and call.func.attr in names


def syncing(patch: pytest.MonkeyPatch, do: Callable[[Site], bool]) -> None:
    """Let every sync on the simulated disk happen only if ``do`` says so of its site."""
    for name in ("sync", "sync_data"):
        real = getattr(SimulatedFileSystem, name)

        def maybe(self: SimulatedFileSystem, handle: int, real: Callable[..., None] = real) -> None:
            if do(site()):
                real(self, handle)

        patch.setattr(SimulatedFileSystem, name, maybe)


def sites_of(case: Case, patch: pytest.MonkeyPatch) -> set[Site]:
    """The syncs that a case makes."""
    made: set[Site] = set()

    def note(site: Site) -> bool:
        made.add(site)
        return True

    with patch.context() as within:
        syncing(within, note)
        for durability in case.durabilities:
            enumeration.calls_of(case, durability)
    return made


def test_every_sync_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    """P5: the list of syncs in the source equals the list of mutants killed."""
    by_site: dict[Site, list[Case]] = {}
    for case in [*CASES, *REPAIRS[:4], *snapshot_stores.CASES]:
        for made in sites_of(case, monkeypatch):
            by_site.setdefault(made, []).append(case)
    killed = {mutant for mutant, cases in by_site.items() if _is_killed(mutant, cases, monkeypatch)}
    assert {(module, line) for module, _, line in killed} == sites_in_the_source()


def _is_killed(mutant: Site, cases: list[Case], patch: pytest.MonkeyPatch) -> bool:
    for case in cases:
        enumeration.states(case)  # of the store that is not broken
        proofs: list[Callable[[Case], int]] = [
            partial(enumeration.power_cuts, limit=60, durability=durability) for durability in case.durabilities
        ]
        proofs.append(partial(enumeration.kills_then_power_cuts, limit=10))
        for prove in proofs:
            with patch.context() as within:
                syncing(within, lambda site: site != mutant)
                try:
                    prove(case)
                except Exception:
                    return True
    return False
