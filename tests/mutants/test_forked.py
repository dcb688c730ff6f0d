"""A mutant in a fork meets the tests as if it stood in the file, and what is beside it meets nothing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.mutants.forked import Forks
from tests.mutants.running import copies, environment

pytestmark = pytest.mark.long
SOURCE = '''"""A module that is tried."""

from contextlib import contextmanager


def twice(number):
    while number > 100:
        pass
    return number + number


@contextmanager
def counted(into):
    def count():
        into.append(len(into) + 1)

    count()
    yield


def doubled(function):
    def call(number):
        return function(number) * 2

    return call


@doubled
def itself(number):
    return number
'''
TESTS = """import os, subprocess, sys
from transcript_store._log.tried import counted, itself, twice

def test_twice():
    assert twice(2) == itself(2) == 4

def test_counted(tmp_path):
    (tmp_path / "a").touch()
    with counted(found := []):
        assert found == [1]

def test_a_process():
    asked = "from transcript_store._log.tried import twice; assert twice(3) == 6"
    subprocess.run([sys.executable, "-c", asked], check=True)

def test_an_end():
    if twice(1) != 2:
        os._exit(9)
"""
ALL = [f"tests/test_tried.py::test_{name}" for name in ("twice", "counted", "a_process", "an_end")]


@pytest.fixture(scope="module")
def forks() -> Iterator[Forks]:
    with copies(1) as (copy,):
        (copy / "transcript_store/_log/tried.py").write_text(SOURCE)
        (copy / "tests/test_tried.py").write_text(TESTS)
        made = Forks(copy, ["tests/test_tried.py"], environment(copy))
        yield made
        made.close()


def change(before: str, after: str) -> dict[str, Any]:
    start = SOURCE.index(before)
    return {"module": "_log/tried.py", "start": start, "end": start + len(before), "text": after}


def test_the_killing_test_is_named_and_the_mutant_is_removed(forks: Forks) -> None:
    """Also of a function in a function, and with lines more or less in front of what follows."""
    assert forks.noticed_by(None, ALL, 60) is None
    assert forks.noticed_by(change("number + number", "number - number"), ALL, 60) == ALL[0]
    assert forks.noticed_by(change("len(into) + 1", "len(into)"), ALL, 60) == ALL[1]
    assert forks.noticed_by(change("\n        pass", " pass"), ALL, 60) is None
    assert forks.noticed_by(change("number > 100", "(\n\n\n)"), ALL, 60) is None
    assert forks.noticed_by(None, ALL, 60) is None


def test_a_process_that_a_test_starts_has_no_mutant(forks: Forks) -> None:
    assert forks.noticed_by(change("number + number", "number - number"), ALL[1:3], 60) is None


def test_what_does_not_end_and_what_ends_alone_are_noticed(forks: Forks) -> None:
    assert forks.noticed_by(change("number > 100", "number > 1"), ALL[:1], 0.5) == "no end within 0.5 seconds"
    assert forks.noticed_by(change("number + number", "number - number"), ALL[3:], 60) == "an end with 9"
    assert forks.noticed_by(None, ALL, 60) is None


def test_a_mutant_that_needs_its_file_meets_the_tests_in_the_file(forks: Forks) -> None:
    """Of a function that was made with a name from around it, and has no use for it now. It meets the tests in the file."""
    assert forks.noticed_by(change("function(number) * 2", "number * 3"), ALL, 60) is None
