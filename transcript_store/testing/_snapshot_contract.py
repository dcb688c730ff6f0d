"""The contract of ``SnapshotStore``, as numbered checks. The docstring of a check is the rule that an error prints."""

from __future__ import annotations

import base64
import threading
from collections.abc import Callable
from typing import Any

from transcript_store import InvalidSnapshotIdError, Snapshot, SnapshotNotFoundError, SnapshotStore, ToolSnapshot
from transcript_store.testing._arguments import require_function

__all__ = ["check_snapshot_store"]

MakeStore = Callable[[], SnapshotStore]

_ID = "0e5a3c52-7f0b-4c39-9b60-0d6f3f2a9b11"
_NOT_IDS = (
    "",
    "..",
    "../../etc/passwd",
    "a/b",
    ".",
    "snapshot",
    _ID.upper(),
    _ID + "\n",
    " " + _ID,
    _ID + "\0",
    _ID[:-1] + "\0",
    _ID + ".json",
    "{" + _ID + "}",
    "urn:uuid:" + _ID,
    _ID.replace("-", ""),
    _ID.replace("0", "\u0660"),
    "x" * 100_000,
)
_IMAGE = base64.b64encode(bytes(range(256)) * 8).decode()


def check_snapshot_store(make_store: MakeStore) -> None:
    """Check a ``SnapshotStore`` against its contract. It returns nothing if the store keeps it.

    Args:
        make_store: makes an empty store at each call, which shares nothing with the others.

    Raises:
        TypeError: ``make_store`` is not a function.
        AssertionError: a rule is broken. The message begins with the number of the rule, as in ``S7``.
    """
    require_function("make_store", make_store)
    for number, check in enumerate(CONTRACT, 1):
        try:
            check(make_store())
        except Exception as error:
            raise AssertionError(f"S{number}, {(check.__doc__ or '').strip()} {error!r}") from error


def _nothing(store: SnapshotStore) -> None:
    """A store that is new lists nothing."""
    assert list(store.list()) == []


def _whole(store: SnapshotStore) -> None:
    """A saved snapshot is loaded equal, in every member."""
    snapshot = _snapshot(
        system_prompt="Be \u201cbrief\u201d <&>\u2028",
        tools=(ToolSnapshot("search", "finds", {"type": "object", "x-own": [1.5, None]}), ToolSnapshot("stop")),
        metadata={"zebra": "1", "apple": "<&>", "": ""},
        created_at="2026-03-31T14:00:00.123456789+02:00",
    )
    store.save(snapshot)
    _same(store, snapshot)


def _opaque_messages(store: SnapshotStore) -> None:
    """Messages keep what decoding would lose: the order and repetition of keys, big integers, how numbers are written."""
    text = (
        rb'[{"z":1,"a":1.0,"a":1e3,"n":123456789012345678901234567890,"m":-0.0,"e":1E+2,"s":"<&>\u2028\ud83d\ude00\ud800\u0000"},'
        rb'[],{},[[{}]],"text",true,false,null,0,"\\ud800 \/ \u00e9",""]'
    )
    snapshot = _snapshot(messages_json=text)
    store.save(snapshot)
    _same(store, snapshot)
    assert store.load(snapshot.id).messages_json == snapshot.messages_json


def _no_messages(store: SnapshotStore) -> None:
    """No messages, and ``null``, stay what they are; both are an empty list to a reader."""
    for text in (b"null", b"[]"):
        snapshot = _snapshot(messages_json=text)
        store.save(snapshot)
        _same(store, snapshot)
        assert store.load(snapshot.id).messages == []


def _replaced(store: SnapshotStore) -> None:
    """A snapshot with the same id replaces the one before it."""
    old, new = _snapshot(id=_ID, messages=["old"]), _snapshot(id=_ID, messages=["new", "er"])
    store.save(old)
    store.save(new)
    _same(store, new)
    assert [summary.message_count for summary in store.list()] == [2]


def _not_found(store: SnapshotStore) -> None:
    """An unknown id raises ``SnapshotNotFoundError``."""
    store.save(_snapshot())
    for call in (store.load, store.delete):
        error = _error(call, _ID)
        assert isinstance(error, SnapshotNotFoundError), f"{call} gave {error!r}"


def _bad_id(store: SnapshotStore) -> None:
    """An invalid id raises ``InvalidSnapshotIdError``, which shows at most 32 characters of it."""
    for id in _NOT_IDS:  # noqa: A001
        for call in (store.load, store.delete):
            error = _error(call, id)
            assert isinstance(error, InvalidSnapshotIdError), f"{call} of {id[:50]!r} gave {error!r}"
            assert len(str(error)) < 300


def _deleted(store: SnapshotStore) -> None:
    """A snapshot that was deleted is gone, and only that one."""
    gone, kept = _snapshot(messages=[_IMAGE]), _snapshot(messages=[_IMAGE])
    store.save(gone)
    store.save(kept)
    store.delete(gone.id)
    assert isinstance(_error(store.load, gone.id), SnapshotNotFoundError)
    assert isinstance(_error(store.delete, gone.id), SnapshotNotFoundError)
    assert [summary.id for summary in store.list()] == [kept.id]
    _same(store, kept)


def _newest_first(store: SnapshotStore) -> None:
    """A listing is in the order of the moments, the newest first, whatever offset they are written with."""
    times = [
        "2026-03-31T23:00:00-02:00",
        "2026-04-01T00:59:59.999999999Z",
        "2026-04-01T00:59:59.99999999Z",
        "2026-04-01T02:00:00+02:00",
        "2026-03-31T23:59:59Z",
        "0001-01-01T00:00:00Z",
    ]
    for time in (times[3], times[0], times[5], times[2], times[4], times[1]):
        store.save(_snapshot(created_at=time))
    assert [summary.created_at for summary in store.list()] == times


def _summary(store: SnapshotStore) -> None:
    """A listing shows a snapshot's stated tokens, or else an estimate from its text alone."""
    counted = _snapshot(messages=["one", "two"], metadata={"transcript_store.approximate_tokens": "1234"})
    guessed = _snapshot(messages=["word " * 800])
    image = _snapshot(messages=[_IMAGE, "x" * 400])
    for snapshot in (counted, guessed, image):
        store.save(snapshot)
    found = {summary.id: summary for summary in store.list()}
    summary = found[counted.id]
    assert (summary.provider, summary.model, summary.created_at) == (
        counted.provider,
        counted.model,
        counted.created_at,
    )
    assert (summary.message_count, summary.approximate_tokens) == (2, 1234)
    assert 900 < found[guessed.id].approximate_tokens < 1100
    assert found[image.id].approximate_tokens < 300
    assert all(summary.size_bytes > 0 for summary in found.values())


def _media(store: SnapshotStore) -> None:
    """Media comes back, and so does a text that looks like a reference to some."""
    reference = "chatmedia+sha256:" + "0" * 64
    snapshot = _snapshot(
        messages=[
            {
                "role": "user",
                "content": [{"data": _IMAGE}, {"data": _IMAGE}, {"url": "data:image/png;base64," + _IMAGE}],
            },
            {"content": reference, reference: "chatmedia+sha256:", "c": "chatmedia+sha256:../../x", _IMAGE: "a key"},
        ]
    )
    store.save(snapshot)
    _same(store, snapshot)


def _own_copies(store: SnapshotStore) -> None:
    """A caller's changes of loaded messages change nothing that is stored."""
    snapshot = _snapshot(messages=[{"role": "user", "content": "kept"}])
    store.save(snapshot)
    messages = store.load(snapshot.id).messages
    messages[0]["content"] = "changed"
    messages.append("more")
    _same(store, snapshot)


def _only_snapshots(store: SnapshotStore) -> None:
    """Anything but a snapshot is a ``TypeError``."""
    save: Callable[[Any], None] = store.save
    assert isinstance(_error(save, {"id": _ID}), TypeError)
    assert list(store.list()) == []


def _threads(store: SnapshotStore) -> None:
    """Threads that save and load at the same time each find whole snapshots."""
    errors: list[BaseException] = []

    def work(number: int) -> None:
        try:
            for turn in range(3):
                own = _snapshot(messages=[number, turn, _IMAGE])
                store.save(own)
                store.save(_snapshot(id=_ID, messages=[number] * 5))
                _same(store, own)
                assert len(set(store.load(_ID).messages)) == 1
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors, f"{errors[0]!r}"
    assert len(store.list()) == 13


CONTRACT: tuple[Callable[[SnapshotStore], None], ...] = (
    _nothing,
    _whole,
    _opaque_messages,
    _no_messages,
    _replaced,
    _not_found,
    _bad_id,
    _deleted,
    _newest_first,
    _summary,
    _media,
    _own_copies,
    _only_snapshots,
    _threads,
)


def _snapshot(*, messages_json: bytes | None = None, **fields: Any) -> Snapshot:
    snapshot = Snapshot.create(**{"provider": "claude", "model": "a-model", "messages": [], **fields})
    if messages_json is None:
        return snapshot
    return Snapshot(
        id=snapshot.id,
        provider=snapshot.provider,
        model=snapshot.model,
        messages_json=messages_json,
        created_at=snapshot.created_at,
    )


def _same(store: SnapshotStore, snapshot: Snapshot) -> None:
    found = store.load(snapshot.id)
    assert found == snapshot, f"{found.to_json()[:300]!r} is not {snapshot.to_json()[:300]!r}"


def _error(call: Callable[[Any], object], argument: object) -> Exception | None:
    try:
        call(argument)
    except Exception as error:
        return error
    return None
