"""`transcript-store keep` as a process: its output, its end, two at once, and the installed service."""

from __future__ import annotations

import errno
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.cli.helpers import Cli
from tests.keeping.helpers import expected, keeping, texts, until, words_of, write
from transcript_store import StorageError

DAY = 86_400


def status(cli: Cli, library: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(cli("keep", "status", "--into", str(library), "--json").out)
    return found


def test_once_and_the_status(home: Path, tmp_path: Path, cli: Cli) -> None:
    """Before, after, with something new, and with a source that cannot be read: what it says, and the exit codes."""
    library = tmp_path / "library"
    source = write(home, "a", [1, 2])
    at = time.time() - 25 * DAY
    os.utime(source, (at, at))
    before = status(cli, library)
    assert (before["runs"], before["behind"], before["is_ok"]) == (False, {"claude-code": 1}, False)
    assert before["retention"][0]["sentence"] == (
        "Claude Code deletes 1 session within 7 days; 1 of them is not in the library"
    )
    assert (
        json.loads(cli("keep", "--dry-run", "--only", "codex,claude-code", "--into", str(library), "--json").out)[
            "action"
        ]
        == "created"
    )
    assert not os.path.exists(library)
    assert cli("keep", "--once", "--into", str(library)).code == 0
    assert texts(library) == expected(a=2)
    after = status(cli, library)
    assert (after["behind"], after["retention"][0]["missing"]) == ({}, [])
    assert after["programs"]["claude-code"]["sessions"] == 1
    assert after["programs"]["claude-code"]["last_source"] == str(source)
    (source.parent / "strange.jsonl").write_text('{"x": 1}\n')
    assert cli("keep", "--once", "--into", str(library)).code == 1
    said = cli("keep", "status", "--into", str(library))
    assert said.code == 1
    assert "does not run" in said.out
    assert '"cleanupPeriodDays": 36500' in said.out
    assert "strange.jsonl: is of no format" in said.err
    doctor = cli("doctor", str(library))
    assert "Claude Code deletes 1 session within 7 days; all of them are in the library" in doctor.out


def test_a_copy_that_fails_is_no_success(home: Path, tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was "shipped to … ; 0 records still to send" with exit code 0, though the server had never answered."""
    pytest.importorskip("transcript_store.backends", reason="the package without its backends")
    pytest.importorskip("obstore")
    from transcript_store.backends import LibraryShipper

    def send(_shipper: LibraryShipper) -> None:
        raise StorageError(errno=errno.EIO, strerror="away", path="x", doing="ship")

    monkeypatch.setattr(LibraryShipper, "send", send)
    write(home, "a", [1, 2])
    library = tmp_path / "library"
    assert cli("keep", "--once", "--into", str(library), "--ship", "memory:///agents").code == 1
    monkeypatch.setattr("transcript_store.keeping.is_kept", lambda _path: True)  # as if it ran
    said = cli("keep", "status", "--into", str(library))
    assert said.code == 1
    assert "\nship      to memory:///agents failed at " in said.out
    assert "; the number of records still to send is unknown\n" in said.out
    assert "shipped" not in said.out
    assert status(cli, library)["is_ok"] is False


def test_a_failure_names_its_conversation_once(
    home: Path, tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`keep status` printed the path of a conversation that was not shipped twice: an error of the library begins with it."""
    pytest.importorskip("transcript_store.backends", reason="the package without its backends")
    pytest.importorskip("obstore")
    from transcript_store.backends import LibraryShipper, NotShipped

    one = str(tmp_path / "library" / "one")

    def send(_shipper: LibraryShipper) -> list[NotShipped]:
        error = StorageError(errno=errno.EACCES, strerror="Permission denied", path=one, doing="copy the conversation")
        return [NotShipped(directory=one, error=error)]

    monkeypatch.setattr(LibraryShipper, "send", send)
    write(home, "a", [1, 2])
    library = str(tmp_path / "library")
    assert cli("keep", "--once", "--into", library, "--ship", "memory:///agents").code == 1
    said = cli("keep", "status", "--into", library).err
    assert f"not shipped: {one}: cannot copy the conversation: Permission denied" in said
    assert said.count(one) == 1


def test_it_runs_until_it_is_ended(home: Path, tmp_path: Path, cli: Cli) -> None:
    """New sessions are imported while it runs; a second one names the first; SIGTERM is an ordinary end."""
    library = tmp_path / "library"
    write(home, "a", [1, 2])
    with keeping(library) as process:
        until(process, "caught-up")
        write(home, "a", [3])
        write(home, "b", [1])
        until(process, "imported", action="created")
        now = status(cli, library)
        assert (now["runs"], now["pid"], now["late_seconds"]) == (True, process.pid, None)
        second = cli("keep", "--into", str(library))
        assert second.code == 1
        assert f"process {process.pid} already keeps this library" in second.err
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=60) == 0
    assert texts(library) == expected(a=3, b=1)
    assert status(cli, library)["runs"] is False


@pytest.mark.long
def test_two_at_once_that_do_not_know_each_other(home: Path, tmp_path: Path) -> None:
    """In containers that share a home, say: each session is there once, whole."""
    for number in range(30):
        write(home, f"s{number}", range(1, 5))
    library = tmp_path / "library"
    with (
        keeping(library, XDG_STATE_HOME=str(tmp_path / "one")) as one,
        keeping(library, XDG_STATE_HOME=str(tmp_path / "two")) as two,
    ):
        until(one, "caught-up")
        until(two, "caught-up")
        for number in range(30):
            write(home, f"s{number}", [5])
        deadline = time.monotonic() + 120
        while texts(library) != expected(**{f"s{number}": 5 for number in range(30)}):
            assert time.monotonic() < deadline
            time.sleep(0.5)
        for process in (one, two):
            process.send_signal(signal.SIGTERM)
            assert process.wait(timeout=60) == 0


@pytest.mark.long
def test_a_process_that_was_stopped(home: Path, tmp_path: Path, cli: Cli) -> None:
    """SIGSTOP, as a laptop that sleeps: afterwards it says how long it stood still, and takes what came meanwhile."""
    library = tmp_path / "library"
    write(home, "a", [1])
    with keeping(library) as process:
        until(process, "caught-up")
        process.send_signal(signal.SIGSTOP)
        write(home, "a", [2])
        time.sleep(60)  # more than the 30 seconds that it takes for a stop, and the pause of 5 or more that it was in
        assert status(cli, library)["runs"] is True
        process.send_signal(signal.SIGCONT)
        (*before, gap) = until(process, "gap")
        assert gap["cause"] == "stopped"
        assert 5 < gap["seconds"] < 300
        if not any(
            event["event"] == "imported" for event in before
        ):  # it was stopped while it looked, and went on with that
            until(process, "imported", action="grew")
    assert texts(library) == expected(a=2)


@pytest.mark.long
@pytest.mark.needs("faketime")
@pytest.mark.parametrize("moved", ["+400d", "-400d"])
def test_a_clock_that_jumps(home: Path, tmp_path: Path, moved: str) -> None:
    """Forward or back while it runs: it says so, and what is written under either clock is taken once."""
    library, clock = tmp_path / "library", tmp_path / "clock"
    clock.write_text("+0\n")
    write(home, "a", [1])
    found = subprocess.run(["faketime", "-f", "+0", "env"], capture_output=True, text=True, check=False)
    preload = next(
        (line.partition("=")[2] for line in found.stdout.splitlines() if line.startswith("LD_PRELOAD=")), None
    )
    if preload is None:
        pytest.skip("faketime does not say what it preloads")
    environment: Any = {
        "LD_PRELOAD": preload,
        "FAKETIME_TIMESTAMP_FILE": str(clock),
        "FAKETIME_NO_CACHE": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        "NO_FAKE_STAT": "1",
    }
    with keeping(library, **environment) as process:
        until(process, "caught-up")
        clock.write_text(f"{moved}\n")
        (*_, gap) = until(process, "gap")
        assert gap["cause"] == ("stopped" if moved.startswith("+") else "clock")
        write(home, "a", [2])
        until(process, "imported", action="grew")
        clock.write_text("+0\n")
        until(process, "gap")
        write(home, "a", [3])
        until(process, "imported", action="grew")
    assert texts(library) == expected(a=3)


@pytest.mark.root
@pytest.mark.needs("mount")
def test_a_real_disk_that_is_full(home: Path, tmp_path: Path, cli: Cli) -> None:
    """The kernel refuses, it says so once, and takes the rest when there is room again."""
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(disk)], check=True)
    try:
        for number in range(40):
            write(home, f"s{number}", range(1, 9))
        with keeping(disk / "library") as process:
            problem = until(process, "problem", doing="import")[-1]
            assert "No space left" in problem["reason"]
            assert status(cli, disk / "library")["problem"]["doing"] == "import"
            subprocess.run(["mount", "-o", "remount,size=64m", str(disk)], check=True)
            until(process, "recovered")
        assert texts(disk / "library") == expected(**{f"s{number}": 8 for number in range(40)})
    finally:
        subprocess.run(["umount", "--lazy", str(disk)], check=True)


@pytest.fixture
def called(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file in which a systemctl and a launchctl of the test's own note how they were called."""
    (tmp_path / "bin").mkdir()
    for name in ("systemctl", "launchctl"):
        (tmp_path / "bin" / name).write_text(f'#!/bin/sh\necho {name} "$@" >> {shlex.quote(f"{tmp_path}/called")}\n')
        (tmp_path / "bin" / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    return tmp_path / "called"


def test_install_shows_writes_and_starts(home: Path, tmp_path: Path, cli: Cli, called: Path) -> None:
    """Nothing is written by a dry run, or unasked; then the file is what was shown; and it is removed again."""
    options = ("--into", str(tmp_path / "with space 100% $HOME"), "--redact")
    shown = cli("keep", "install", *options, "--dry-run", "--json")
    answer = json.loads(shown.out)
    assert (shown.code, answer["is_written"], os.path.exists(answer["path"])) == (0, False, False)
    unasked = cli("keep", "install", *options)
    assert (unasked.code, os.path.exists(answer["path"])) == (1, False)
    assert answer["text"] in unasked.out
    done = cli("keep", "install", *options, "--yes", "--json")
    assert (done.code, json.loads(done.out)["is_started"]) == (0, True), done.err
    assert Path(answer["path"]).read_text() == answer["text"]
    assert os.stat(answer["path"]).st_mode & 0o777 == 0o600
    assert called.read_text().splitlines()[-1] == answer["commands"][-1]
    assert cli("keep", "uninstall", "--dry-run").code == 0
    assert cli("keep", "uninstall").code == 1
    assert os.path.exists(answer["path"])
    assert cli("keep", "uninstall", "--yes").code == 0
    assert not os.path.exists(answer["path"])
    assert json.loads(cli("keep", "uninstall", "--json").out)["was_there"] is False


@pytest.mark.long
@pytest.mark.skipif(sys.platform == "darwin", reason="a unit of systemd")
def test_what_the_unit_starts(home: Path, tmp_path: Path, cli: Cli) -> None:
    """ExecStart, run as it is printed."""
    write(home, "a", [1, 2])
    library = tmp_path / "with space 100% $HOME"
    shown = cli("keep", "install", "--into", str(library), "--poll", "--redact", "--dry-run", "--json")
    process = subprocess.Popen([*words_of(json.loads(shown.out)["text"]), "--json"], stdout=subprocess.PIPE, text=True)
    try:
        until(process, "caught-up")
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=60) == 0
        process.communicate()
    assert texts(library) == expected(a=2)


def test_a_machine_without_systemd(home: Path, tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file is written, and the sentence says what did not start it."""
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    done = cli("keep", "install", "--into", str(tmp_path / "l"), "--yes")
    assert done.code == 1
    assert "was written, but not started: there is no" in done.err


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--only", "nothing"), "there is no such program"),
        (("--only", "codex,nothing"), "--only nothing: there is no such program"),
        (("--ship", "folder"), "--ship takes a backend's address"),
        (("status", "extra"), "unrecognized arguments"),
        (("start",), "invalid choice"),
        (("install", "--ship", "postgresql://ada:secret@host/db"), "the service's file would contain the password"),
    ],
)
def test_what_makes_no_sense(home: Path, tmp_path: Path, cli: Cli, options: tuple[str, ...], said: str) -> None:
    done = cli("keep", *options, "--into", str(tmp_path / "l"))
    assert (done.code, "secret" in done.err) == (2, False)
    assert said in done.err


def test_a_key_that_is_no_file_is_not_written_down(
    home: Path, tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRANSCRIPT_STORE_KEY", "ab" * 32)
    done = cli("keep", "install", "--into", str(tmp_path / "l"), "--dry-run")
    assert done.code == 2
    assert "abab" not in done.out + done.err
    assert "--key-file" in done.err
    assert cli("keep", "uninstall", "--dry-run").code == 0


def test_in_the_foreground_it_says_that_it_stays(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def ctrl_c(_keeper: Any, **_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("transcript_store.keeping.Keeper.run", ctrl_c)
    code, out, _ = cli("keep", "--poll", "--into", str(tmp_path / "library"))
    assert code == 0
    assert out == "it follows the programs until Ctrl-C; `transcript-store keep install` makes it a service\n"
