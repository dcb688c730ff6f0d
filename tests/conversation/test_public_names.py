"""Each public name is listed once, exists before it is imported, is documented, and cannot be changed by accident."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import subprocess
import sys
import types
from typing import Any

import pytest

import transcript_store
from transcript_store import (
    AppendResult,
    ConversationMetadata,
    ConversationNotLoadedError,
    ConversationStore,
    RefreshResult,
)

# ---- begin and end --------------------------------------------------------------------------------------------------


def test_what_type_checkers_know():
    """A ``TypedDict`` is a message; a name that is not public is none for them either (mypy reads this)."""
    from typing import TypedDict

    class Said(TypedDict):
        role: str

    said: Said = {"role": "user"}
    with pytest.raises(ImportError):
        from transcript_store import ConversationStoer  # type: ignore[attr-defined]  # noqa: F401
    with pytest.raises(ConversationNotLoadedError):
        ConversationStore("nowhere").append_messages([said])


# ---- errors and names -----------------------------------------------------------------------------------------------

PACKAGE: Any = transcript_store
DOORS = ("hints", "errors", "conversation", "library", "maintenance", "snapshots", "keys")


def test_what_is_public_is_listed_once():
    """The names in the package are those of its doors, no name in two of them, and each comes from this package."""
    listed = [name for door in DOORS for name in names_of(importlib.import_module(f"transcript_store.{door}"))]
    assert PACKAGE.__all__ == sorted(listed)
    for name in listed:
        assert getattr(transcript_store, name).__module__.startswith("transcript_store.")
    shown = {name for name, value in vars(transcript_store).items() if not isinstance(value, types.ModuleType)}
    assert {name for name in shown if not name.startswith("_")} == set(listed)


def names_of(door: Any) -> list[str]:
    """The door's own list; the errors are what their module defines."""
    defined = [name for name, value in vars(door).items() if getattr(value, "__module__", "") == door.__name__]
    return list(getattr(door, "__all__", None) or [name for name in defined if not name.startswith("_")])


def test_a_public_name_is_there_before_it_is_imported():
    """For ``dir()``, for ``import *`` and for whoever asks; a name imports no door behind its own, and a wrong name is none."""
    script = (
        "import sys, transcript_store\n"
        "there = lambda: {name for name in sys.modules if name.startswith('transcript_store.')}\n"
        "assert there() == {'transcript_store._lazy'}\n"
        "from transcript_store import StorageError\n"
        "assert 'transcript_store.errors' in there() and 'transcript_store.conversation' not in there()\n"
        "from transcript_store import ConversationStore\n"
        "assert 'transcript_store.library' not in there()\n"
        "assert set(transcript_store.__all__) <= set(dir(transcript_store))\n"
        "before = set(globals())\n"
        "from transcript_store import *\n"
        "assert set(globals()) - before - {'before'} == set(transcript_store.__all__) - before\n"
        "assert not hasattr(transcript_store, 'no_such_name')"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


def test_everything_public_has_a_docstring():
    """Every public class, function, method and property says what it is for."""
    missing = []
    for name in PACKAGE.__all__:
        thing = getattr(transcript_store, name)
        if not (thing.__doc__ or "").strip():
            missing.append(name)
        if inspect.isclass(thing):
            for member, value in inspect.getmembers_static(thing):
                is_ours = inspect.isfunction(value) or isinstance(value, (property, classmethod, staticmethod))
                if not member.startswith("_") and is_ours and not inspect.getdoc(getattr(thing, member)):
                    missing.append(f"{name}.{member}")
    assert missing == []


def test_values_are_frozen_and_slotted():
    """What calls return cannot be changed by accident: dataclasses are frozen and slotted, the others are tuples."""
    from transcript_store import Finding, Record, Recovery, Verification

    for kind in (ConversationMetadata, Record, Recovery, Finding, Verification):
        assert dataclasses.is_dataclass(kind)
        assert vars(kind)["__dataclass_params__"].frozen
        assert "__slots__" in vars(kind)
    assert issubclass(AppendResult, tuple)
    assert issubclass(RefreshResult, tuple)
