"""A fork whose delete was refused at its sync is gone, and a power cut may bring it back: the model of the machine knows it."""

from __future__ import annotations

import errno
from collections.abc import Callable

import pytest

from transcript_store.testing._model import (
    ExpectedConversation,
    ModelledConversation,
    Operation,
    close_after_kill,
    observe,
)
from transcript_store.testing._simulated_machine import FileSystemCall


def forked_and_deleted() -> tuple[ModelledConversation, ExpectedConversation]:
    """A conversation whose fork was deleted, except that the sync behind it was refused; and its history with the fork."""
    of = ModelledConversation()
    of.begin()
    entry = ({"role": "user", "content": "hi"}, {"n": 1})
    of.perform(
        Operation(
            lambda: of.store.append_message(entry[0], extra=entry[1]), lambda history: history.with_records(entry)
        )
    )
    of.perform(
        Operation(lambda: of.library.fork(of.id, through_seq=1), lambda history: history.with_fork(1), syncs=True)
    )
    with_fork = of.shown
    (fork,) = with_fork.forks
    (id_of_fork,) = {str(one.id) for one in of.library.list()} - {of.id}
    refused: list[FileSystemCall] = []

    def refuse(call: FileSystemCall) -> None:
        if call.name == "sync" and of.folder == call.path:
            refused.append(call)
            raise OSError(errno.EIO, "injected")

    delete = Operation(
        lambda: of.library.delete(id_of_fork), lambda history: history.without_fork(fork), stands_alone=True
    )
    of.look(of.attempt(delete, refuse), loaded=False)
    assert refused
    assert of.shown.forks == ()
    return of, with_fork


def after_power_cut(
    of: ModelledConversation, choose: Callable[[int], int]
) -> tuple[ExpectedConversation, list[ExpectedConversation]]:
    """What the next machine shows, and what may be there by the model."""
    may_be = of.lose_power([of.shown])
    of.disk = of.disk.power_failure(choose)
    close_after_kill(of.store)
    of.load()
    return observe(of.store, of.library), may_be


@pytest.mark.parametrize("comes_back", [True, False])
def test_the_fork_may_come_back(comes_back: bool) -> None:
    """Both disks are allowed: the one that wrote nothing of the delete, and the one that wrote all of it."""
    of, with_fork = forked_and_deleted()
    found, may_be = after_power_cut(of, (lambda _: 0) if comes_back else (lambda count: count - 1))
    assert found == (with_fork if comes_back else with_fork.without_fork(*with_fork.forks))
    assert found in may_be


def test_a_replace_of_the_original_does_not_settle_it() -> None:
    """A replace syncs the conversation's own folder; the fork's name stands in the library."""
    of, with_fork = forked_and_deleted()
    of.perform(
        Operation(
            lambda: of.store.replace_transcript([{"role": "user", "content": "anew"}]),
            lambda history: history.replaced_by(({"role": "user", "content": "anew"}, None)),
            syncs=True,
        )
    )
    found, may_be = after_power_cut(of, lambda _: 0)
    assert found.forks == with_fork.forks
    assert found in may_be


def test_another_fork_settles_it() -> None:
    """It syncs the library: from then on the first one stays away, and the model allows nothing else."""
    of, _ = forked_and_deleted()
    of.perform(
        Operation(lambda: of.library.fork(of.id, through_seq=0), lambda history: history.with_fork(0), syncs=True)
    )
    found, may_be = after_power_cut(of, lambda _: 0)
    assert found.forks == ((),)
    assert may_be == [found]
