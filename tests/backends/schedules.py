"""Sessions on one backend in a given order: each is a greenlet that stops before each of its requests.

A schedule is a list of choices: who goes on, and what becomes of its request; or which late request lands now. ``every`` goes through all
schedules that there are, ``at_random`` draws some. ``World.judge`` says what must hold at the end of each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from random import Random
from typing import Any, NamedTuple, Protocol

from greenlet import greenlet

from transcript_store import ConversationLibrary, ConversationStore
from transcript_store.backends import BackendConversation, BackendError, ConversationTakenOverError
from transcript_store.testing import BackendRequest, Fate, SimulatedBackend, SimulatedFileSystem, SimulatedStop

ID = "6f1c2c0e-53cb-4d7e-8a5f-0a3a1c7d9e21"
READS = (Fate.REFUSED, Fate.KILLED)
WRITES = (Fate.REFUSED, Fate.LOST, Fate.LATE, Fate.TWICE, Fate.KILLED, Fate.KILLED_AFTER, Fate.KILLED_LATE)


class LossError(AssertionError):
    """A promise was broken."""


class PrunedError(Exception):
    """A schedule leads nowhere: what it would be removed on with commutes with what was done."""


class Claimed(NamedTuple):
    """A claim that returned: its number, and what its writer had read then."""

    epoch: int
    read: list[str]


class World:
    """One backend, the answers that its sessions got, and the clock."""

    def __init__(self, backend: SimulatedBackend, *, pack_each: int = 1000) -> None:
        self.backend = backend
        self._pack_each = pack_each
        self.acknowledged: list[tuple[str, int, str]] = []
        """Writer, epoch, text."""
        self.refused: set[str] = set()
        self.unknown: list[tuple[BackendConversation, BackendError, str]] = []
        self.claims: list[Claimed] = []
        self.tried: set[str] = set()
        self.machine = SimulatedFileSystem()
        """The clock and the chance of all of them."""
        self._opened: list[BackendConversation] = []

    def session(self, name: str, attempts: int = 2, **options: Any) -> BackendConversation:
        """A store that neither loaded nor created anything yet."""
        given: dict[str, Any] = {
            "holder": name,
            "take_over": True,
            "file_system": self.machine,
            "pack_each": self._pack_each,
        }
        store = BackendConversation(self.backend, ID, waits_seconds=(0.0,) * (attempts - 1), **(given | options))
        self._opened.append(store)
        return store

    def library(self) -> ConversationLibrary:
        return ConversationLibrary(self.backend, file_system=self.machine)

    def close(self) -> None:
        """Close what the sessions left open, whatever becomes of it."""
        self.backend.on_request = None
        for store in self._opened:
            store.close()

    def judge(self) -> int:
        """Read the log with nothing in the way, hold it to R2, R3, R4, R5, R6 and R9, and append to it; returns how many were acknowledged.

        What was late lands afterwards, and nothing may have changed.
        """
        self.backend.on_request = None
        final = texts(self.read())
        self._judge(final)
        if self.backend.late:
            while self.backend.late:
                self.backend.land()
            landed = texts(self.read())
            if landed[: len(final)] != final:
                raise LossError(f"R5: a late request changed {final} into {landed}")
            self._judge(landed)
            final = landed
        last = self.session("judge")
        last.load()
        reader = self.read()
        last.append_message({"text": "the end"})
        reader.refresh()
        if texts(reader) != [*final, "the end"]:
            raise LossError("R5: what was appended at the end is not at the end")
        if not self.library().verify(ID).is_intact:
            raise LossError("R7: it does not verify")
        self.close()
        return len(self.acknowledged)

    def read(self) -> BackendConversation:
        reader = self.session("reader", read_only=True)
        try:
            reader.load()
        except Exception as error:
            raise LossError(f"R5: the log cannot be read: {error}") from error
        return reader

    def _judge(self, final: list[str]) -> None:
        told = [text for _, _, text in self.acknowledged]
        if lost := [text for text in told if text not in final]:
            raise LossError(f"R1: acknowledged and lost: {lost} of {final}")
        if len(set(final)) != len(final):
            raise LossError(f"R5: stored twice: {final}")
        if foreign := set(final) - self.tried:
            raise LossError(f"R7: nobody wrote {foreign}")
        if stored := self.refused & set(final):
            raise LossError(f"R4: refused, and stored: {stored}")
        for writer in {writer for writer, _, _ in self.acknowledged}:
            order = [final.index(text) for name, _, text in self.acknowledged if name == writer]
            if order != sorted(order):
                raise LossError(f"R5: out of order: {order}")
        for claim in self.claims:
            if claim.read != final[: len(claim.read)]:
                raise LossError(f"R9: epoch {claim.epoch} read {claim.read}, which is no beginning of {final}")
            unread = [text for _, epoch, text in self.acknowledged if epoch < claim.epoch and text not in claim.read]
            if unread:
                raise LossError(f"R3: epoch {claim.epoch} was claimed without {unread}")
        for store, error, text in self.unknown:
            if store.outcome(error) not in (None, text in final):
                raise LossError(f"R6: the outcome of {text} is told as {store.outcome(error)}")


def texts(conversation: BackendConversation | ConversationStore) -> list[str]:
    return [message["text"] for message in conversation.get_messages()]


class Actor:
    """A session with a script; it records the answers that it gets."""

    def __init__(self, world: World, name: str, *, attempts: int = 2, **options: Any) -> None:
        self.world, self.name = world, name
        self.store = world.session(name, attempts, **options)
        self._count = 0

    def load(self) -> bool:
        try:
            self.store.load()
            self.world.claims.append(Claimed(self.store.epoch, texts(self.store)))
        except BackendError:
            return False
        return True

    def append(self) -> bool:
        """Append the next text; False if the session is deposed."""
        self._count += 1
        text = f"{self.name}{self._count}"
        self.world.tried.add(text)
        try:
            self.store.append_message({"text": text})
        except ConversationTakenOverError:
            self.world.refused.add(text)
            return False
        except BackendError as error:
            if error.outcome == "unknown":
                self.world.unknown.append((self.store, error, text))
            else:
                self.world.refused.add(text)
        else:
            self.world.acknowledged.append((self.name, self.store.epoch, text))
        return True

    def append_many(self, count: int) -> bool:
        return all(self.append() for _ in range(count))

    def let_go(self) -> bool:
        with suppress(BackendError):
            self.store.close()
        return True

    def pack(self) -> None:
        with suppress(BackendError, ConversationTakenOverError):
            self.store.pack(tidy=True)


def begun(backend: SimulatedBackend, *, messages: int = 0, pack_each: int = 1000) -> tuple[World, Actor]:
    """A world with a conversation, and the session that began it."""
    world = World(backend, pack_each=pack_each)
    first = Actor(world, "a")
    first.store.initialize()
    for _ in range(messages):
        first.append()
    world.tried.add("the end")
    return world, first


Choose = Callable[[int], int]
Scripts = Sequence[Callable[[], object]]


class Judged(Protocol):
    """A backend, and the rules that must hold when all scripts have ended."""

    backend: SimulatedBackend

    def judge(self) -> int: ...


def run(
    world: Judged,
    scripts: Scripts,
    choose: Choose,
    *,
    faults: int,
    commute: Callable[[BackendRequest, BackendRequest], bool] = lambda *_: False,
) -> int:
    """Run the scripts to their ends as ``choose(n)`` says, which returns one of n; at most ``faults`` requests go wrong.

    Of two requests that ``commute``, made one right behind the other, that of the earlier script comes first: the other order comes to
    the same.
    """
    main = greenlet.getcurrent()

    def script(act: Callable[[], object]) -> Callable[[], Any]:
        def until_killed() -> None:
            with suppress(SimulatedStop):
                act()

        return until_killed

    actors = [greenlet(script(act)) for act in scripts]
    # A summary decides nothing: it is done as it is asked for, and is no place where another session comes in.
    world.backend.on_request = lambda request: None if request.call == "put_summary" else main.switch(request)
    waiting: list[tuple[int, greenlet, BackendRequest]] = []

    def go_on(number: int, actor: greenlet, *what: Any) -> None:
        request = actor.switch(*what)
        if not actor.dead:
            waiting.append((number, actor, request))

    for number, actor in enumerate(actors):
        go_on(number, actor)
    late = world.backend.late
    before: tuple[int, BackendRequest] | None = None
    while waiting:  # what is still late then lands in the judgement
        may_go_on = [
            index
            for index, (number, _, request) in enumerate(waiting)
            if before is None or number >= before[0] or not commute(request, before[1])
        ]
        options: list[tuple[int, Fate | None]] = [(index, Fate.DONE) for index in may_go_on]
        options += [(index, None) for index in range(len(late))]
        if faults:
            for index in may_go_on:
                options += [(index, fate) for fate in (WRITES if waiting[index][2].changes else READS)]
        if not options:
            raise PrunedError
        index, fate = options[choose(len(options))]
        if fate is None:
            world.backend.land(index)
            before = None
            continue
        faults -= fate is not Fate.DONE
        number, actor, request = waiting.pop(index)
        before = number, request
        go_on(number, actor, fate)
    return world.judge()


def every(
    make: Callable[[], tuple[Judged, Scripts]],
    *,
    faults: int,
    commute: Callable[[BackendRequest, BackendRequest], bool] = lambda *_: False,
) -> Iterator[int]:
    """Run every schedule there is; yields how much each acknowledged. Of ``commute``: :func:`run`."""
    path: list[list[int]] = []
    while True:
        position = 0

        def choose(options: int) -> int:
            nonlocal position
            if position == len(path):
                path.append([0, options])
            assert path[position][1] == options, "a schedule is the same each time it is run"
            position += 1
            return path[position - 1][0]

        world, scripts = make()
        try:
            yield run(world, scripts, choose, faults=faults, commute=commute)
        except PrunedError:
            pass  # the other order was run
        except Exception as error:
            raise LossError(f"{error}; choices {[choice for choice, _ in path]}") from error
        while path and path[-1][0] + 1 == path[-1][1]:
            path.pop()
        if not path:
            return
        path[-1][0] += 1


def at_random(
    make: Callable[[], tuple[Judged, Scripts]], *, seeds: Sequence[int], faults: int, calm: float = 0.0
) -> Iterator[int]:
    """Run one schedule for each seed. ``calm`` is the share of choices among the first three: which session continues,
    without a fault.
    """
    for seed in seeds:
        random = Random(seed)
        world, scripts = make()

        def choose(options: int, random: Random = random) -> int:
            is_calm = calm and random.random() < calm
            return random.randrange(min(options, 3) if is_calm else options)

        try:
            yield run(world, scripts, choose, faults=faults)
        except Exception as error:
            raise LossError(f"{error}; seed {seed}") from error
