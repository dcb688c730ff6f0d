"""Both stores keep the contract of ``check_snapshot_store``, and the contract objects to stores that do not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.snapshots.helpers import BOTH, KEY
from transcript_store import (
    FileStore,
    InvalidMessageError,
    InvalidSnapshotIdError,
    MemorySnapshotStore,
    Snapshot,
    SnapshotNotFoundError,
    SnapshotStore,
)
from transcript_store.testing import SimulatedFileSystem, check_snapshot_store
from transcript_store.testing._snapshot_contract import CONTRACT
from transcript_store.testing.machines import SnapshotStoreMachine


def numbered(tmp_path: Path, key: bytes | None) -> Callable[[], SnapshotStore]:
    made: list[FileStore] = []

    def make() -> SnapshotStore:
        made.append(FileStore(tmp_path / f"store-{len(made)}", encryption_key=key))
        return made[-1]

    return make


@BOTH
def test_a_file_store_keeps_the_contract(tmp_path: Path, key: bytes | None) -> None:
    """Every numbered line of ``check_snapshot_store``, sealed and plain."""
    check_snapshot_store(numbered(tmp_path, key))


def test_a_memory_store_keeps_the_contract() -> None:
    """The same."""
    check_snapshot_store(MemorySnapshotStore)


class InFiles(SnapshotStoreMachine):
    """A ``FileStore`` on a simulated disk, opened anew now and then."""

    def make_store(self) -> SnapshotStore:
        self.disk = SimulatedFileSystem()
        return FileStore("/store", file_system=self.disk, encryption_key=self.key)

    def reopened(self, store: SnapshotStore) -> SnapshotStore:
        return FileStore("/store", file_system=self.disk, encryption_key=self.key)

    key: bytes | None = None


class Sealed(InFiles):
    key = KEY


class Forgets(MemorySnapshotStore):
    """Deletes the newest in place of the one that it was asked for: each check with one snapshot is content."""

    def delete(self, id: str) -> None:
        self.load(id)
        super().delete(self.list()[0].id)


class Forgetful(SnapshotStoreMachine):
    def make_store(self) -> SnapshotStore:
        return Forgets()


@pytest.mark.parametrize("machine", [SnapshotStoreMachine, InFiles, Sealed])
@pytest.mark.parametrize("lives", [5, pytest.param(200, marks=pytest.mark.long)])
def test_a_store_is_a_dictionary(machine: type[SnapshotStoreMachine], lives: int) -> None:
    """Saves, loads, lists and deletes in any order, over several processes."""
    live(machine, lives)


def test_the_machine_objects_to_a_store_that_deletes_another_one() -> None:
    with pytest.raises((AssertionError, SnapshotNotFoundError)):
        live(Forgetful, 50)


def live(machine: type[SnapshotStoreMachine], lives: int) -> None:
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=lives,
            stateful_step_count=20,
            deadline=None,
            derandomize=True,
            database=None,
            report_multiple_bugs=False,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        ),
    )


class Broken(MemorySnapshotStore):
    """A store that breaks one line of the contract."""

    how = ""

    def save(self, snapshot: Any) -> None:
        if self.how == "adds" and self.list():
            return
        if self.how == "anything":
            snapshot = snapshot if isinstance(snapshot, Snapshot) else Snapshot.create(provider="p", messages=[])
        if self.how == "messages":
            snapshot = Snapshot.create(
                **{**_fields(snapshot), "messages": snapshot.messages if _plain(snapshot) else []}
            )
        if self.how == "metadata":
            snapshot = Snapshot.create(**{**_fields(snapshot), "metadata": {}, "messages": None})
        super().save(snapshot)

    def load(self, id: str) -> Snapshot:
        if self.how == "bad id":
            try:
                return super().load(id)
            except InvalidSnapshotIdError as error:
                raise SnapshotNotFoundError(id="") from error
        if self.how == "not found":
            try:
                return super().load(id)
            except SnapshotNotFoundError as error:
                raise InvalidSnapshotIdError(reason="not found", id="") from error
        return super().load(id)

    def list(self) -> Any:
        found = super().list()
        return found[::-1] if self.how == "order" else ["ghost"] if self.how == "ghost" else found

    def delete(self, id: str) -> None:
        super().delete(id)
        if self.how == "delete":
            self._stored.clear()  # of the store that it is, otherwise whole


def _fields(one: Snapshot) -> dict[str, Any]:
    return {"id": one.id, "provider": one.provider, "model": one.model, "created_at": one.created_at, "messages": None}


def _plain(one: Snapshot) -> bool:
    try:
        Snapshot.create(provider="", messages=one.messages)
    except InvalidMessageError:
        return False
    return True


@pytest.mark.parametrize(
    "how", ["adds", "anything", "messages", "metadata", "bad id", "not found", "order", "ghost", "delete"]
)
def test_the_contract_objects_to_a_broken_store(how: str) -> None:
    """Its silence about ours would mean nothing otherwise; and it says which line is broken."""
    broken = type("Broken", (Broken,), {"how": how})
    with pytest.raises(AssertionError, match=r"^S\d+, "):
        check_snapshot_store(broken)


def test_every_line_of_the_contract_says_what_it_demands() -> None:
    """The message of a failure begins with its number and that sentence."""
    assert all(check.__doc__ for check in CONTRACT)
