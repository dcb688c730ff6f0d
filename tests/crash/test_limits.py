"""Limits that no injection can stand for: a file system without inodes, a write that the kernel cuts off, a clock set back.

Full disks in bytes, RLIMIT_FSIZE at every byte, RLIMIT_NOFILE, immutable files and read-only mounts are in
tests/hostile/test_as_root.py.
"""

from __future__ import annotations

import errno
import os
import resource
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.crash.seeded_bugs import BUGS, Bug
from tests.crash.strace import Say
from tests.kit.children import Child
from transcript_store import ConversationStore, StorageError, TranscriptStoreError, verify


@pytest.fixture
def few_inodes() -> Iterator[Path]:
    """A file system for 40 files."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m,nr_inodes=40", "tmpfs", folder], check=True)
        try:
            yield Path(folder)
        finally:
            subprocess.run(["umount", "--lazy", folder], check=True)


OPERATIONS: dict[str, Callable[[ConversationStore], object]] = {
    "append": lambda store: store.append_message({"n": 1}),
    "replace": lambda store: store.replace_transcript([{"n": 1}], model="new"),
    "update": lambda store: store.update_metadata(model="new"),
    "load": lambda store: store.load(),
}


@pytest.mark.root
@pytest.mark.parametrize("operation", OPERATIONS)
def test_no_inodes_left(few_inodes: Path, operation: str) -> None:
    """P7: with any number of inodes left an operation works, or is refused with ENOSPC and changes nothing; with inodes
    again the same store goes on.
    """
    refusals = successes = 0
    for spare in range(5):
        directory = few_inodes / f"c{spare}"
        with ConversationStore(directory) as store:
            store.initialize(model="old", messages=[{"n": 0}])
            if operation == "load":
                store.close()
                with open(directory / "transcript.jsonl", "ab") as file:
                    file.write(b"{torn")
            fillers = _use_up_the_inodes(few_inodes, spare)
            before = successes
            try:
                OPERATIONS[operation](store)
                successes += 1
            except StorageError as error:
                if error.errno != errno.ENOSPC:
                    raise
                refusals += 1
                if operation != "load":
                    assert store.get_messages() == [{"n": 0}]
                    assert store.get_metadata().model == "old"
            for filler in fillers:
                filler.unlink()
            if operation == "load":
                if successes == before:
                    store.load()
                assert store.recovery is not None
            messages = store.get_messages()
            store.append_message({"last": 1})
        with ConversationStore(directory) as again:
            again.load()
            assert again.get_messages() == [*messages, {"last": 1}]
        assert verify(directory).is_intact
    if operation == "append":
        assert successes == 5, "an append needs no inode"
    else:
        assert refusals >= 1
        assert successes >= 1


def _use_up_the_inodes(folder: Path, spare: int) -> list[Path]:
    fillers: list[Path] = []
    with pytest.raises(OSError, match="No space"):
        while True:
            filler = folder / f"filler{len(fillers)}"
            filler.touch()
            fillers.append(filler)
    for filler in fillers[:spare]:
        filler.unlink()
    return fillers[spare:]


def tear_at_every_byte(directory: Path) -> None:
    """Let the kernel cut a write off after 0, 1, 2 … bytes, and go on."""

    def work(_: Say) -> None:
        with ConversationStore(directory) as store:
            store.initialize()
            store.append_message({"n": 0})
            hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
            expected = [{"n": 0}]
            for over in range(0, 150, 7):
                size = os.stat(directory / "transcript.jsonl").st_size
                resource.setrlimit(resource.RLIMIT_FSIZE, (size + over, hard))
                with suppress(StorageError):
                    store.append_message({"n": over})
                    expected.append({"n": over})
                resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
                store.append_message({"after": over})
                expected.append({"after": over})
            assert len(expected) < 2 * 22, "nothing was torn"
        with ConversationStore(directory) as store:
            store.load()
            assert store.recovery is None
            assert store.get_messages() == expected

    Child(work).end()


def test_a_write_that_is_cut_off(tmp_path: Path) -> None:
    """P3, P7: what the kernel wrote of a line before it refused the rest is taken back before anything else is written."""
    tear_at_every_byte(tmp_path / "c")


@pytest.mark.parametrize("bug", [bug for bug in BUGS if "limits" in bug.on_the_kernel], ids=lambda bug: bug.name)
def test_a_seeded_bug_is_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bug: Bug) -> None:
    """P3, P7: a store that leaves the part that was written must fail here."""
    bug.break_it(monkeypatch)
    with pytest.raises((AssertionError, TranscriptStoreError)):
        tear_at_every_byte(tmp_path / "c")


@pytest.mark.long
@pytest.mark.needs("faketime")
def test_the_clock_is_set_back(tmp_path: Path) -> None:
    """P19: an hour, a day and a year backwards between appends, for real: the order is that of the appends, times never
    fall, and a jump of a day and more is on record.
    """
    offset = tmp_path / "offset"
    done = subprocess.run(
        ["faketime", "-f", "+0", "env"], capture_output=True, text=True, check=True, env={"PATH": os.environ["PATH"]}
    )
    offset.write_text("+0")
    preload = dict(line.split("=", 1) for line in done.stdout.splitlines())["LD_PRELOAD"]
    script = """
        import os, sys, time
        from pathlib import Path
        from transcript_store import ConversationStore
        offset, directory = map(Path, sys.argv[1:])
        real = []
        with ConversationStore(directory) as store:
            store.initialize()
            for n, jump in enumerate(("+0", "-1h", "-30d", "-365d", "+0", "+1h", "-1h")):
                offset.with_suffix(".new").write_text(jump)
                os.replace(offset.with_suffix(".new"), offset)  # it is read at any time
                real.append(time.time())
                store.append_message({"n": n})
            assert min(real) < max(real) - 300 * 86400, "the clock was not set back: nothing was tested"
        with ConversationStore(directory) as store:
            store.load()
            assert [message["n"] for message in store.get_messages()] == list(range(7))
            times = [record.at for record in store.get_records()]
            assert times == sorted(times), times
        """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script), str(offset), str(tmp_path / "c")],
        env={**os.environ, "LD_PRELOAD": preload, "FAKETIME_TIMESTAMP_FILE": str(offset), "FAKETIME_NO_CACHE": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert verify(tmp_path / "c").is_intact
    assert (tmp_path / "c" / "transcript.jsonl").read_bytes().count(b'"clock":') >= 2
