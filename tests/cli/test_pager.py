"""``show`` on a terminal sends long output through a pager, without control sequences."""

from __future__ import annotations

import fcntl
import os
import pty
import shlex
import subprocess
import sys
import termios
from pathlib import Path

import pytest

from tests.cli import helpers
from tests.cli.helpers import COMMAND, ENVIRONMENT, conversation, obeyed, without_looks

ROWS, COLUMNS = 20, 60
PAGER = "import os, sys; open(sys.argv[1], 'w').write(os.environ.get('LESSSECURE', '') + '|' + sys.stdin.read())"
"""A pager that notes what it is given."""


def on_a_terminal(*arguments: str, **environment: str) -> tuple[int, str]:
    """Run ``show`` with its output on a terminal; its exit code, and what the terminal got."""
    environment = {**ENVIRONMENT, "TERM": "xterm", "COLUMNS": str(COLUMNS), "LINES": str(ROWS), **environment}
    return helpers.on_a_terminal("show", *arguments, rows=ROWS, columns=COLUMNS, environment=environment)


def noting(file: Path) -> str:
    return shlex.join([sys.executable, "-c", PAGER, str(file)])


@pytest.fixture
def long(tmp_path: Path) -> str:
    messages = [
        {"role": "user", "content": f"Question {number} \x1b[7mred\x1b[0m \x1b]0;title\x07"} for number in range(30)
    ]
    return conversation(tmp_path / "long", messages)


def test_what_is_longer_than_the_screen_goes_to_the_pager(long, tmp_path):
    """All of it and nothing on the terminal; LESSSECURE is set, and no escape of the transcript is in it."""
    code, said = on_a_terminal(long, PAGER=noting(tmp_path / "noted"))
    assert (code, said) == (0, "")
    secure, _, noted = (tmp_path / "noted").read_text().partition("|")
    assert secure == "1"
    assert "Question 0 " in noted
    assert "Question 29 \\x1b[7mred" in noted
    assert obeyed(without_looks(noted)) == set()


def test_what_fits_is_printed(tmp_path):
    path = conversation(tmp_path / "short", [{"role": "user", "content": "Where were we?"}])
    code, said = on_a_terminal(path, PAGER=noting(tmp_path / "noted"))
    assert code == 0
    assert "Where were we?" in said
    assert not (tmp_path / "noted").exists()


def test_a_line_that_is_longer_than_the_screen_counts_as_the_rows_that_it_takes(tmp_path):
    path = conversation(tmp_path / "wide", [{"role": "user", "content": "x" * ROWS * COLUMNS}])
    on_a_terminal(path, PAGER=noting(tmp_path / "noted"))
    assert (tmp_path / "noted").exists()


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize(
    ("arguments", "environment"),
    [
        (("--no-pager",), {}),
        ((), {"TRANSCRIPT_STORE_NO_PAGER": "1"}),
        ((), {"PAGER": "cat"}),
        ((), {"PAGER": ""}),
        ((), {"PAGER": "there-is-no-such-pager"}),
        ((), {"PAGER": "less '"}),
        ((), {"TERM": "dumb"}),
        (("--json",), {}),
    ],
)
def test_without_a_pager_all_of_it_is_printed(long, tmp_path, arguments, environment):
    code, said = on_a_terminal(long, *arguments, **{"PAGER": noting(tmp_path / "noted"), **environment})
    assert code == 0
    assert "Question 29" in said
    assert not (tmp_path / "noted").exists()


def test_to_a_file_nothing_is_paged(long, tmp_path):
    environment = {**ENVIRONMENT, "PAGER": noting(tmp_path / "noted")}
    done = subprocess.run((*COMMAND, "show", long), env=environment, capture_output=True, text=True, check=True)
    assert "Question 29" in done.stdout
    assert not (tmp_path / "noted").exists()


def test_leaving_the_pager_early_exits_with_0(tmp_path):
    """The command ends, with 0 and without a word, though most of it was not read."""
    messages = [{"role": "user", "content": "x" * 100_000} for _ in range(20)]
    path = conversation(tmp_path / "long", messages)
    pager = shlex.join([sys.executable, "-c", "import sys; sys.stdin.readline()"])
    assert on_a_terminal(path, PAGER=pager) == (0, "")


@pytest.mark.needs("less")
def test_less_shows_the_first_page_and_ends_with_q(long):
    """As it is by default."""
    master, slave = pty.openpty()
    termios.tcsetwinsize(slave, (ROWS, COLUMNS))
    environment = {
        name: value for name, value in ENVIRONMENT.items() if name not in ("PAGER", "LESS", "LINES", "COLUMNS")
    }
    process = subprocess.Popen(
        (*COMMAND, "show", long), stdin=slave, stdout=slave, stderr=slave, env={**environment, "TERM": "xterm"},
        start_new_session=True, preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # noqa: PLW1509 (nothing else happens in it)
    )  # fmt: skip
    os.close(slave)
    said = b""
    while b"Question 1 " not in said:
        said += os.read(master, 65536)
    assert b"Question 29" not in said
    os.write(master, b"q")
    try:
        while os.read(master, 65536):
            pass
    except OSError:
        pass
    assert process.wait() == 0
    os.close(master)
