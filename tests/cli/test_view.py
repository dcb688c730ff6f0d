"""``transcript-store view``: a page in a file, and in the browser."""

from __future__ import annotations

import fcntl
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.helpers import ENVIRONMENT, Cli, conversation


def test_view_writes_a_page_and_says_where(tmp_path, cli: Cli, monkeypatch):
    """Without ``--output`` it has the name of the conversation and its last day, in the working directory."""
    conversation(tmp_path / "today", [{"role": "user", "content": "Where were we?"}])
    monkeypatch.chdir(tmp_path)
    done = cli("view", "today")
    (page,) = tmp_path.glob("where-were-we-20??-??-??.html")
    assert (done.code, done.out) == (0, f"{page}\n")
    assert "Where were we?" in page.read_text()
    opened: list[str] = []

    def browse(address: str) -> bool:
        opened.append(address)
        return True

    monkeypatch.setattr("webbrowser.open", browse)
    assert cli("view", "today", "--output", "again.html", "--open", "--plain").code == 0
    assert opened == [(tmp_path / "again.html").as_uri()]


def test_all_pages_of_a_library_have_an_index(tmp_path, cli: Cli, monkeypatch):
    """With every name in it, what asks for nothing, and links that lead to the pages; names of pages are told apart."""
    hostile = "<script>alert(1)</script> ../../x\x1b[2J"
    for number, said in enumerate(("Mend the test", "Mend the test", hostile)):
        conversation(tmp_path / f"chats/c{number}", [{"role": "user", "content": said}])
    damaged = conversation(tmp_path / "chats/broken", [{"role": "user", "content": "Lost"}])
    Path(damaged, "transcript.jsonl").write_bytes(b"torn")
    for _ in range(2):  # a second time it replaces its own pages
        done = cli("view", "--all", str(tmp_path / "site"), str(tmp_path / "chats"))
        index = (tmp_path / "site/index.html").read_text()
    assert done.out.splitlines()[-1] == str(tmp_path / "site/index.html")
    linked = set(re.findall(r'<a[^>]* href="([^"]*)"', index))
    assert linked == {path.name for path in (tmp_path / "site").iterdir()} - {"index.html"}
    assert len([name for name in linked if name.startswith("mend-the-test-")]) == 2
    assert ("<script>alert" in index, "http://" in index, "https://" in index) == (False, False, False)
    assert cli("view", "--all", str(tmp_path / "site"), "--output", "x").code == 2
    before = sorted(tmp_path.rglob("*"))
    for inside in ("chats", "chats/site"):
        done = cli("view", "--all", str(tmp_path / inside), str(tmp_path / "chats"))
        assert (done.code, "name a place outside of it" in done.err) == (2, True)
    assert sorted(tmp_path.rglob("*")) == before


def test_what_is_no_page_is_not_replaced(tmp_path, cli: Cli):
    path = conversation(tmp_path / "today", [{"role": "user", "content": "Where were we?"}])
    done = cli("view", path, "--output", f"{path}/metadata.json")
    assert done.code == 1
    assert "a file that is not a page of this program is there; choose another path" in done.err
    assert cli("verify", path).code == 0


def test_without_a_browser_it_says_so(tmp_path, cli: Cli, monkeypatch):
    path = conversation(tmp_path / "today")
    monkeypatch.setattr("webbrowser.open", lambda address: False)
    done = cli("view", path, "--output", str(tmp_path / "page.html"), "--open")
    assert (done.code, "open the file yourself" in done.err) == (1, True)


def test_redacted_it_says_how_much(tmp_path, cli: Cli):
    path = conversation(tmp_path / "today", [{"role": "user", "content": "the word is Swordfish"}])
    page = tmp_path / "page.html"
    done = cli("view", path, "--output", str(page), "--redact-pattern", "Swordfish")
    assert done.code == 0
    assert "redacted: 1 pattern" in done.err
    assert "Swordfish" not in page.read_text()


def test_a_dash_is_standard_output(tmp_path, cli: Cli, monkeypatch):
    """No file of that name is written, by ``view`` and by ``export``."""
    path = conversation(tmp_path / "today", [{"role": "user", "content": "Where were we?"}])
    monkeypatch.chdir(tmp_path)
    page = cli("view", path, "--output", "-")
    assert (page.code, page.err, "Where were we?" in page.out) == (0, "", True)
    assert page.out.endswith("</html>\n")
    assert cli("export", path, "--to", "markdown", "--output", "-") == cli("export", path, "--to", "markdown")
    assert cli("view", path, "--output", "-", "--open").code == 2
    refused = cli("export", path, "--to", "claude-code", "--output", "-")
    assert (refused.code, "takes a folder" in refused.err) == (2, True)
    assert [one.name for one in tmp_path.iterdir()] == ["today"]


@pytest.mark.parametrize("command", [("view",), ("export", "--to", "markdown")])
def test_missing_folders_are_made(tmp_path, cli: Cli, command: tuple[str, ...]):
    path = conversation(tmp_path / "today", [{"role": "user", "content": "Where were we?"}])
    output = tmp_path / "a" / "b" / "page"
    assert cli(*command, path, "--output", str(output)).out == f"{output}\n"
    assert "Where were we?" in output.read_text()


_STOPS = """
import sys
from transcript_store.view import _files
def pieces():
    yield _files.MARK
    print("writing", flush=True)
    sys.stdin.read()
_files.replace_page(sys.argv[1], pieces())
"""


def test_what_a_killed_view_left_is_removed_by_the_next(tmp_path, cli: Cli):
    """What another one writes just now is not, nor what is of another page."""
    path, page = conversation(tmp_path / "today"), tmp_path / "pages" / "today.html"
    others = page.parent / f".other.html.{'0' * 16}.tmp"

    def left() -> list[Path]:
        return [one for one in page.parent.glob(".*.tmp") if one != others]

    command = [sys.executable, "-c", _STOPS, str(page)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=ENVIRONMENT) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == b"writing\n"
        others.touch()
        (beside,) = left()
        assert cli("view", path, "--output", str(page)).code == 0
        assert left() == [beside]
        writer.send_signal(signal.SIGKILL)
    assert left() == [beside]
    assert cli("view", path, "--output", str(page)).code == 0
    assert (left(), others.exists()) == ([], True)


def test_a_file_that_is_taken_for_left_over_is_begun_again(tmp_path, cli: Cli, monkeypatch):
    """Another writer may come between the open of the new file and its lock."""
    path, page = conversation(tmp_path / "today"), tmp_path / "today.html"
    real = fcntl.flock
    removed: list[Path] = []

    def late(handle: int, how: int) -> None:
        for one in tmp_path.glob(".today.html.*.tmp") if not removed else ():
            one.unlink()
            removed.append(one)
        real(handle, how)

    monkeypatch.setattr(fcntl, "flock", late)
    assert cli("view", path, "--output", str(page)).code == 0
    assert (len(removed), page.exists()) == (1, True)
