"""``BackendMachine``: puts, reads, packs and lists of a ``Backend`` at random, beside a dictionary."""

from __future__ import annotations

from typing import cast
from uuid import uuid4

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from transcript_store.backends import Backend, PackingBackend

__all__ = ["BackendMachine"]

_ZEROS = b"0" * 32
_CONVERSATIONS = st.integers(0, 2)
_CONTENTS = st.binary(max_size=40) | st.sampled_from([b"\0\xff\r\n\\ '\"%s;--", bytes(range(256)) * 40])


class BackendMachine(RuleBasedStateMachine):
    """A ``Backend``, and what the slots of three of its conversations must hold. There are two sessions; each opens the
    backend by itself.

    Make a subclass with an ``open_backend`` of your own, as for ``check_backend``, and give its ``TestCase`` to your
    test runner. ``check_backend`` has each rule of the contract alone, and the races; this finds what happens between
    many calls. These hold throughout:

    * A slot that was put has its bytes for every reader, until a pack holds it; then the pack has them.
    * A slot is put once. If the name is taken, a put returns False and changes nothing.
    * A list has each conversation that has a slot.
    """

    def __init__(self) -> None:
        super().__init__()
        self.sessions = [self.open_backend(), self.open_backend()]
        self.ids = [str(uuid4()) for _ in range(3)]
        self.slots: list[list[bytes]] = [[], [], []]
        """The stored slots of each conversation, from slot 1."""
        self.packed = [0, 0, 0]
        """The last slot of each that a pack holds."""

    def open_backend(self) -> Backend:
        """The same backend, opened again, as another process would. Existing data does not matter."""
        raise NotImplementedError("give your machine an open_backend(), as for check_backend")

    # ---- rules -----------------------------------------------------------------------------------------------------

    @rule(one=_CONVERSATIONS, session=st.integers(0, 1), content=_CONTENTS)
    def put(self, one: int, session: int, content: bytes) -> None:
        """Put the next slot, after the last one."""
        number = len(self.slots[one]) + 1
        data = _slot(number, content)
        assert self.sessions[session].put(self.ids[one], number, data, self._head(one)) is True
        self.slots[one].append(data)

    @rule(one=_CONVERSATIONS, session=st.integers(0, 1), content=_CONTENTS)
    def put_behind_another(self, one: int, session: int, content: bytes) -> None:
        """The next slot, by a session that thinks of another one before it. A backend that looks back refuses; no backend has to look."""
        number = len(self.slots[one]) + 1
        data = _slot(number, content)
        if self.sessions[session].put(self.ids[one], number, data, b"f" * 32):
            self.slots[one].append(data)

    @rule(data=st.data(), one=_CONVERSATIONS, session=st.integers(0, 1), content=_CONTENTS)
    def put_again(self, data: st.DataObject, one: int, session: int, content: bytes) -> None:
        """A slot that is taken, also with the stored bytes. (One that a pack holds may be free: it is never read.)"""
        if not self.slots[one]:
            return
        number = data.draw(st.integers(1, len(self.slots[one])), label="slot")
        again = data.draw(st.sampled_from([_slot(number, content), self.slots[one][number - 1]]), label="bytes")
        is_put = self.sessions[session].put(self.ids[one], number, again, self._head(one, number - 1))
        assert is_put is False or number <= self.packed[one], f"slot {number} was put twice"

    @precondition(lambda self: any(len(slots) > 2 for slots in self.slots) and hasattr(self.sessions[0], "put_pack"))
    @rule(data=st.data(), one=_CONVERSATIONS)
    def pack(self, data: st.DataObject, one: int) -> None:
        """All slots but the last go into a pack, again if a process was killed after it, and are removed one by one."""
        first, last = self.packed[one] + 1, len(self.slots[one]) - 1
        if first >= last:
            return
        backend, id = cast(PackingBackend, self.sessions[0]), self.ids[one]  # noqa: A001
        for _ in range(data.draw(st.integers(1, 2), label="times")):
            backend.put_pack(id, first, last, b"".join(self.slots[one][first - 1 : last]))
        assert backend.packs_from(id, last)
        assert not backend.packs_from(id, last + 1)
        removed = data.draw(st.sets(st.integers(first, last)), label="slots that are removed")
        self.packed[one] = last
        backend.delete_slots(id, sorted(removed))

    @rule(session=st.integers(0, 1))
    def reopen(self, session: int) -> None:
        """Another process takes the backend of one of the two."""
        self.sessions[session] = self.open_backend()

    @rule(data=st.data(), one=_CONVERSATIONS, session=st.integers(0, 1))
    def read_the_end(self, data: st.DataObject, one: int, session: int) -> None:
        """Read all slots after some slot, and all slots."""
        self._insist(one, session, data.draw(st.integers(0, len(self.slots[one]) + 1), label="after"))

    @rule(limit=st.integers(1, 3), session=st.integers(0, 1))
    def list_pages(self, limit: int, session: int) -> None:
        """Page by page, in the order of their text, beside whatever else is in the backend."""
        after, found = "", list[str]()
        while page := self.sessions[session].conversations(after=after, limit=limit):
            assert len(page) <= limit
            found += page
            after = page[-1]
        assert found == sorted(set(found))
        for id, slots in zip(self.ids, self.slots, strict=True):  # noqa: A001
            assert (id in found) == bool(slots)

    @invariant()
    def both_read_all(self) -> None:
        """Each session reads what either put."""
        for one in range(3):
            for session in range(2):
                self._insist(one, session, 0)

    # ---- within ----------------------------------------------------------------------------------------------------

    def _head(self, one: int, number: int | None = None) -> bytes:
        """The hash of a slot, of the last one unless a number is given; of slot 0 it is zeros."""
        before = self.slots[one][: len(self.slots[one]) if number is None else number]
        return before[-1].partition(b"\n")[0][-34:-2] if before else _ZEROS

    def _insist(self, one: int, session: int, after: int) -> None:
        found: dict[int, bytes] = {}
        pieces = self.sessions[session].read(self.ids[one], after)
        packs = [piece for piece in pieces if piece.is_pack]
        for piece in pieces:
            if piece.is_pack:
                assert piece.data == b"".join(self.slots[one][piece.first - 1 : piece.last]), "a pack has other bytes"
                found |= {number: self.slots[one][number - 1] for number in range(piece.first, piece.last + 1)}
            elif not any(pack.first <= piece.first <= pack.last for pack in packs):
                assert piece.first == piece.last
                assert piece.first not in found, f"slot {piece.first} is read twice"
                found[piece.first] = piece.data
        expected = {number: data for number, data in enumerate(self.slots[one], 1) if number > after}
        assert {number: data for number, data in found.items() if number > after} == expected


def _slot(number: int, content: bytes) -> bytes:
    """A slot's envelope with a distinct hash, and any bytes after it."""
    return b'{"slot":%d,"hash":"%032x"}\n' % (number, number * 7919 + len(content)) + content
