"""A sample of the store's mutants meets the tests; and the makers of mutants make what they say.

The incident: nine mistakes that somebody made by hand in the store were noticed by no plain test (tests/test_concurrent_changes.py
has them). Which ones nobody has thought of, only a machine can ask.
"""

from __future__ import annotations

import os
from typing import Any

import pytest

from tests.crash.kernel import Note
from tests.mutants.__main__ import difference, table
from tests.mutants.judged import JUDGED
from tests.mutants.near import beginnings
from tests.mutants.operators import mutants_of
from tests.mutants.running import Place, places, run, sample, with_notes

SOURCE = '''
"""A module."""

LIMIT = 3


class Shelf:
    """A docstring of 1 line."""

    def __del__(self) -> None:
        self.close()

    def put(self, book: "int | None" = 0) -> None:
        """Put 1 book."""
        assert book is not None
        logger.info("put %d", 1)
        if book and not self.is_full:
            self._books += [book]
        elif book < 2:
            raise FullError(f"{book + 1} books: {3}", place=4)
        while self._books[-1] is None:
            self._sync()
        with suppress(OSError):
            self.count = len(self._books)

    def all(self) -> list[int]:
        for attempt in range(5):
            if self.is_open(to_read=True):
                return ["one" if attempt else "two", *self._books]
        raise AssertionError("five attempts are enough")
'''


def test_the_mistakes_that_are_made_are_those_of_people() -> None:
    """Each operator once; nothing of docstrings, annotations, asserts, messages, logging, syncs, ``__del__`` and constants."""
    assert sorted(f"{mutant.operator}: {mutant.name}" for mutant in mutants_of(SOURCE.encode())) == [
        "and for or: Shelf.put: if book and not self.is_full: → if (book or not self.is_full):",
        "comparison swapped: Shelf.put: elif book < 2: → elif (book <= 2):",
        "comparison swapped: Shelf.put: while self._books[-1] is None: → while (self._books[-1] is not None):",
        "condition negated: Shelf.all: if self.is_open(to_read=True): → if not (self.is_open(to_read=True)):",
        "condition negated: Shelf.put: if book and not self.is_full: → if not (book and not self.is_full):",
        "nothing suppressed: Shelf.put: with suppress(OSError): → with suppress():",
        "off by one: Shelf.all: for attempt in range(5): → for attempt in range(6):",
        "off by one: Shelf.put: elif book < 2: → elif book < 3:",
        "off by one: Shelf.put: while self._books[-1] is None: → while self._books[-2] is None:",
        "other truth: Shelf.all: if self.is_open(to_read=True): → if self.is_open(to_read=False):",
        "returns early: Shelf.put: if book and not self.is_full: self._books += [book] elif book < 2: "
        'raise FullError(f"{book + 1} books: {3}", place=4) → return',
        "returns early: Shelf.put: while self._books[-1] is None: self._sync() → return",
        "returns early: Shelf.put: with suppress(OSError): self.count = len(self._books) → return",
        'statement dropped: Shelf.put: raise FullError(f"{book + 1} books: {3}", place=4) → pass',
        "statement dropped: Shelf.put: self._books += [book] → pass",
        "statement dropped: Shelf.put: self.count = len(self._books) → pass",
        "tried once: Shelf.all: for attempt in range(5): → for attempt in range(1):",
        "tried once: Shelf.put: while self._books[-1] is None: → for _ in range(bool(self._books[-1] is None)):",
    ]


@pytest.fixture(scope="module")
def found() -> list[Place]:
    return places()


def test_every_mutant_is_python(found: list[Place]) -> None:
    """What does not compile proves nothing. And no two have one name, by which a sample and a judgement know them."""
    assert len(found) > 1000
    for module in {place.module for place in found}:
        names = [place.mutant.name for place in found if place.module == module]
        assert len(set(names)) == len(names)
    for place in sample(found, 100):
        assert difference(place).count("\n@@") == 1


def test_what_was_judged_is_still_made(found: list[Place]) -> None:
    """Code that has changed is judged anew."""
    assert JUDGED.keys() <= {place.mutant.name for place in found}


def test_each_function_notes_that_it_runs() -> None:
    """One with a docstring, one that begins with a decorated function, and none that stands on one line."""
    source = b'from functools import cache\n\n\ndef one() -> int: return 1\n\n\ndef two() -> int:\n    """Two."""\n    return 2\n'
    source += b"\n\ndef outer():\n    @cache\n    def inner():\n        return 3\n\n    return inner()\n"
    ran: list[int] = []
    noted = with_notes([(start, number) for number, start in enumerate(sorted(beginnings(source)))], source)
    names: dict[str, Any] = {"_reached": ran.append}
    exec(noted.replace(b"from transcript_store._reached import reached as _reached\n", b""), names)
    assert (names["one"](), names["two"](), names["outer"](), ran) == (1, 2, 3, [0, 1, 2])


@pytest.mark.long
def test_mutants_of_the_store_are_noticed(record_property: Note) -> None:
    """P5: of twenty mistakes in what decides what is on the disk the tests miss at most one: the goal is 95 %."""
    wanted = [place for place in sample(places(), 20) if place.mutant.name not in JUDGED]
    outcomes, _ = run(wanted, workers=min(2, os.cpu_count() or 1), seconds=120)
    survivors = [difference(outcome.place) for outcome in outcomes if not outcome.is_killed]
    assert len(survivors) <= 1, "\n\n".join([*survivors, table(outcomes, [])])
    record_property("mutants of the store, a sample: noticed by the tests", len(outcomes) - len(survivors))
