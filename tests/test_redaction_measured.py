"""The secrets that `SecretRedactor` misses, and its false alarms: the tables of docs/secrets.md, with fewer of each.

The incidents that the measurement found: fifteen services' forms were unknown, and a token right behind a terminal's colour
was taken for a part of a word.
"""

from __future__ import annotations

from itertools import islice

import pytest

from tests import measured_secrets as measured


def test_no_secret_that_has_a_form_is_missed() -> None:
    """Each kind in each place, at random in texts that others wrote."""
    table = measured.misses(measured.KNOWN, measured.SESSION_FOLDERS, 1)
    assert {where: missed for where, (missed, _) in table.items() if missed} == {}


def test_no_secret_in_base64_is_missed() -> None:
    """In either alphabet, and in UTF-16 as PowerShell has it."""
    table = measured.misses(measured.KNOWN, measured.ENCODED, 1)
    assert {where: missed for where, (missed, _) in table.items() if missed} == {}


def test_no_secret_in_a_known_notation_is_missed() -> None:
    table = measured.misses(measured.NOTATIONS, measured.WRITTEN, 1)
    assert {where: missed for where, (missed, _) in table.items() if missed} == {}


def test_what_has_no_form_is_missed_and_is_said_to_be() -> None:
    """If one of these is found one day, the page that says that it is not has to change."""
    hidden = {"reversed": measured.HIDING["reversed"]}
    formless = measured.misses(measured.FORMLESS, {"in prose": measured.SESSION_FOLDERS["in prose"]}, 1)
    for missed, of in [*measured.misses(measured.KNOWN, hidden, 1).values(), *formless.values()]:
        assert missed == of


@pytest.mark.parametrize("most", [500, pytest.param(None, marks=pytest.mark.long)])
def test_nothing_is_taken_for_a_secret_in_the_texts_of_others(most: int | None) -> None:
    """The corpora, if they are there; and hashes, ids and data at random."""
    for name, texts in measured.corpora():
        if name != "the standard library of Python":  # thirty megabytes: by hand
            number, _, counts = measured.alarms(islice(texts, most))
            assert number > 50
            assert counts == {}, name
