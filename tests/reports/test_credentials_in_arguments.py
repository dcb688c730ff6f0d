"""Errors repeat arguments without the credentials in them, however long the argument is.

The incident: ``"://a:" * 8000`` as an argument kept the command busy for seconds before it printed its error, and four times that text a
minute: each ``://`` was tried with all that follows.
"""

from __future__ import annotations

import time

import pytest

from transcript_store.display import printable_address, without_credentials


@pytest.mark.parametrize(
    "text", ["://a:" * 24_000, "://" * 40_000, "a@b://a:@" + "://a:" * 24_000, "://a" * 30_000, "://" + "@" * 100_000]
)
def test_the_time_is_linear(text: str) -> None:
    start = time.process_time()
    without_credentials(text)
    assert time.process_time() - start < 1  # it took minutes; now milliseconds


def test_an_address_with_many_brackets() -> None:
    start = time.process_time()
    printable_address("x://" + "[" * 100_000)
    assert time.process_time() - start < 1


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a://u:p@h/x and b://v:q/@r@h", "a://h/x and b://h"),
        ("s3://b?u@h c://d", "s3://b?u@h c://d"),
        ("a@b ://c:d", "a@b ://c:d"),
        ("a://u@h:1/p@q://e:f", "a://h:1/p@q://e:f"),
    ],
)
def test_each_address_of_a_text(text: str, shown: str) -> None:
    assert without_credentials(text) == shown
