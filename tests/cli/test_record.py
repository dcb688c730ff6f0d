"""`record`: a program in any language writes a line, reads a line, and knows that its message is safe.

So the acknowledgement must come before the next line is read, must not come for anything that was not stored, and what
is stored must be what was sent.
"""

from __future__ import annotations

import errno
import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cli.helpers import COMMAND, ENVIRONMENT, Cli, conversation, lines
from transcript_store import ConversationMetadata, ConversationStore
from transcript_store._os import filesystem
from transcript_store.cli import main, record

STRANGE: list[dict[str, Any]] = [
    {"role": "user", "content": "a\u2028b\u2029c\u0085d\ve\ff\x1cg\rh\nj"},
    {
        "role": "assistant",
        "content": [{"type": "text", "text": "naïve 👩\u200d🚀 \x00 \x1b[31m"}],
        "n": [1, 2.5, None, True],
    },
    {"\u2028": {"": {}}, "big": [2**64 - 1, -(2**63)], "tiny": 5e-324},
    {},
]


def stored(directory: Path | str) -> list[dict[str, Any]]:
    with ConversationStore(directory, read_only=True) as store:
        store.load()
        return store.get_messages()


def metadata(directory: Path | str) -> ConversationMetadata:
    with ConversationStore(directory, read_only=True) as store:
        store.load()
        return store.get_metadata()


def test_creates_and_appends(cli: Cli, tmp_path: Path) -> None:
    """The first run creates the conversation and counts from 1, the next goes on where it ended."""
    directory = tmp_path / "new" / "chat"
    assert cli("record", str(directory), stdin=lines({"n": 1}, {"n": 2})) == (0, "1\n2\n", "")
    assert cli("record", str(directory), "--durability", "process-crash", stdin=lines({"n": 3})) == (0, "3\n", "")
    assert stored(directory) == [{"n": 1}, {"n": 2}, {"n": 3}]


def test_no_conversation_is_created_that_is_called_last(cli: Cli, tmp_path: Path) -> None:
    """`record chats/last` made a folder of that name: from then on `chats/last` was that one, and not the one that changed last."""
    code, out, err = cli("record", str(tmp_path / "last"), stdin=lines({"n": 1}))
    assert (code, out) == (2, "")
    one = conversation(tmp_path / "one", [{"n": 1}])
    code, out, err = cli("record", str(tmp_path / "last"), stdin=lines({"n": 1}))
    assert (code, out) == (2, "")
    assert f"which is {one}; name a folder" in err
    assert [path.name for path in tmp_path.iterdir()] == ["one"]
    assert stored(one) == [{"n": 1}]
    conversation(tmp_path / "last", [{"n": 1}])  # by a version before, or by a program
    assert cli("record", str(tmp_path / "last"), stdin=lines({"n": 2}))[:2] == (0, "2\n")


def test_secrets_are_taken_out_before_anything_is_stored(cli: Cli, tmp_path: Path) -> None:
    """`--redact` and `--redact-pattern`: of the messages and of the prompt, and the end says how many of each kind."""
    key = "ghp_" + "Ab3dEf6hIj9kLm2nOp5qRs8tUv1wXy4z0123"
    arguments = ["record", str(tmp_path / "c"), "--redact-pattern", r"ACME-\d+", "--system", f"Use {key}."]
    code, out, err = cli(*arguments, stdin=lines({"content": key}, {"content": "ACME-1"}, {"content": "fine"}))
    assert (code, out) == (0, "1\n2\n3\n")
    assert err == "transcript-store: redacted: 2 github-token, 1 pattern\n"
    assert [message["content"] for message in stored(tmp_path / "c")] == [
        "[redacted:github-token]",
        "[redacted:pattern]",
        "fine",
    ]
    assert metadata(tmp_path / "c").system_prompt == "Use [redacted:github-token]."
    assert not any(key.encode() in path.read_bytes() for path in (tmp_path / "c").iterdir() if path.is_file())


def test_metadata_is_of_the_creation(cli: Cli, tmp_path: Path) -> None:
    """Provider, model and system prompt are set when the conversation is created, and never changed after."""
    directory = str(tmp_path / "c")
    assert cli("record", directory, "--provider", "claude", "--model", "m1", "--system", "You are.").code == 0
    code, _, err = cli("record", directory, "--provider", "openai", "--model", "m2", "--system", "No.")
    assert code == 0
    assert err == (
        f"transcript-store: {directory}: the given provider, model, system_prompt differs from the stored value, "
        "which is kept\n"
    )
    found = metadata(directory)
    assert (found.provider, found.model, found.system_prompt) == ("claude", "m1", "You are.")


def test_recorded_lines_come_back_unchanged(cli: Cli, tmp_path: Path) -> None:
    """A line ends in a line feed only: U+2028, NEL, form feed and the like are text, and survive."""
    assert cli("record", str(tmp_path / "c"), stdin=lines(*STRANGE)) == (0, "1\n2\n3\n4\n", "")
    assert stored(tmp_path / "c") == STRANGE


def test_acknowledged_before_the_next_line(tmp_path: Path) -> None:
    """Through a pipe that stays open, each message is acknowledged, and on the disk, before the next is sent."""
    with subprocess.Popen(
        [*COMMAND, "record", str(tmp_path / "c")], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=ENVIRONMENT
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for number in range(1, 6):
            process.stdin.write(lines({"n": number}))
            process.stdin.flush()
            assert process.stdout.readline() == b"%d\n" % number
            assert stored(tmp_path / "c")[-1] == {"n": number}
        process.stdin.close()
        assert process.wait(timeout=60) == 0


def test_an_input_that_does_not_wait(tmp_path: Path) -> None:
    """An input without data for a while has not ended, even if its other users made it non-blocking."""
    end, feed = os.pipe()
    os.set_blocking(end, False)
    with subprocess.Popen(
        [*COMMAND, "record", str(tmp_path / "c")], stdin=end, stdout=subprocess.PIPE, env=ENVIRONMENT
    ) as process:
        os.close(end)
        assert process.stdout is not None
        for piece, acknowledgement in ((b'{"n":1}\n{"n":', b"1\n"), (b"2}\n", b"2\n")):
            os.write(feed, piece)
            assert process.stdout.readline() == acknowledgement
        os.close(feed)
        assert process.wait(timeout=60) == 0
    assert stored(tmp_path / "c") == [{"n": 1}, {"n": 2}]


def test_acknowledged_survives_kill(tmp_path: Path) -> None:
    """What was acknowledged is there after SIGKILL, though the command had no chance to close anything."""
    with subprocess.Popen(
        [*COMMAND, "record", str(tmp_path / "c")], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=ENVIRONMENT
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(lines({"n": 1}))
        process.stdin.flush()
        assert process.stdout.readline() == b"1\n"
        process.kill()
    assert stored(tmp_path / "c") == [{"n": 1}]


def test_blank_lines_and_line_ends(cli: Cli, tmp_path: Path) -> None:
    """Blank lines are skipped, CR LF ends a line as well, and the last line may lack its line feed."""
    sent = b'\n  \t\r\n{"n":1}\r\n\n{"n":2}'
    assert cli("record", str(tmp_path / "c"), stdin=sent) == (0, "1\n2\n", "")
    assert stored(tmp_path / "c") == [{"n": 1}, {"n": 2}]


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        (b'{"a":1,"a":2}', "twice"),
        (b'{"a":18446744073709551616}', "64 bits"),
        (b'{"a":NaN}', "NaN"),
        (b'{"a":1e999}', "inf"),
        (b'{"a":"\xff"}', "UTF-8"),
        (b'{"a":"\\ud800"}', "surrogate"),
        (b"[1]", "an array"),
        (b'"text"', "a string"),
        (b"7", "a number"),
        (b'{"a":', "not JSON"),
        (b'{"a":1} {"b":2}', "not JSON"),
        (b"\x0c", "not JSON"),
        (b'{"a":' * 300 + b"1" + b"}" * 300, "200 levels"),
        (b'{"a":' * 100_000, "200 levels"),
    ],
)
def test_bad_line(cli: Cli, tmp_path: Path, bad: bytes, why: str) -> None:
    """A bad line ends the command with its number and the reason; what came before stays, what comes after is not read."""
    sent = lines({"n": 1}) + b"\n" + bad + b"\n" + lines({"n": 2})
    code, out, err = cli("record", str(tmp_path / "c"), stdin=sent)
    assert (code, out) == (1, "1\n")
    assert err.startswith("transcript-store: standard input, line 3: message")
    assert why in err
    assert err.count("\n") == 1
    assert stored(tmp_path / "c") == [{"n": 1}]


class EndlessLine(io.RawIOBase):
    """An input whose only line has no end; it counts how much of it is taken."""

    def __init__(self, line: bytes) -> None:
        self.taken = 0
        self._line = line

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        buffer[:] = (self._line * (len(buffer) // len(self._line) + 1))[: len(buffer)]
        self.taken += len(buffer)
        return len(buffer)


@pytest.mark.parametrize("filler", [b'{"a":"', b" "])
def test_endless_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], filler: bytes
) -> None:
    """Of a line that is too long no more is read than shows that it is: an endless line ends the command, not the machine."""
    source = EndlessLine(filler)
    monkeypatch.setattr(record, "DEFAULT_MAX_LINE_BYTES", 100_000)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BufferedReader(source)))
    assert main(["record", str(tmp_path / "c")]) == 1
    assert "line 1: message: is longer than 100,000 bytes" in capsys.readouterr().err
    assert source.taken < 300_000
    assert not (tmp_path / "c").exists()


def test_our_own_lines_are_not_messages(cli: Cli, tmp_path: Path) -> None:
    """A transcript, or what `show --json` prints, piped into `record` is refused: its messages would be wrapped twice."""
    assert cli("record", str(tmp_path / "a"), stdin=lines({"role": "user", "content": "x"})).code == 0
    for text in ((tmp_path / "a" / "transcript.jsonl").read_text(), cli("show", str(tmp_path / "a"), "--json").out):
        code, out, err = cli("record", str(tmp_path / "b"), stdin=text.encode())
        assert (code, out) == (1, "")
        assert "jq -c '.message // empty'" in err
        assert not (tmp_path / "b").exists()


def test_record_can_wait_for_another_writer(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`--wait` is how long a second writer waits; without it, it does not."""
    with ConversationStore(tmp_path / "c") as store:
        store.initialize()
        monkeypatch.setattr(filesystem.REAL, "wait", lambda _seconds: store.close())  # the first wait is the last
        assert cli("record", str(tmp_path / "c"), stdin=lines({"n": 1})).code == 1
        assert cli("record", str(tmp_path / "c"), "--wait", "20", stdin=lines({"n": 1})) == (0, "1\n", "")


def test_a_line_within_the_limit_that_cannot_be_stored(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A message that fits but whose record does not is refused in the same way."""
    monkeypatch.setattr(record, "DEFAULT_MAX_LINE_BYTES", 2000)
    code, out, err = cli("record", str(tmp_path / "c"), stdin=lines({"a": "x" * 1980}))
    assert (code, out) == (1, "")
    assert "line 1: message: makes a line of" in err


def test_refuses_what_is_not_a_conversation(cli: Cli, tmp_path: Path) -> None:
    """A folder with somebody's files in it is refused and left alone."""
    (tmp_path / "notes.txt").write_text("mine")
    code, out, err = cli("record", str(tmp_path), stdin=lines({"n": 1}))
    assert (code, out) == (1, "")
    assert "notes.txt" in err
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


@pytest.mark.needs("jq")
def test_jq_reads_what_was_recorded(cli: Cli, tmp_path: Path) -> None:
    """P14: `jq -c '.message // empty' transcript.jsonl` gives back what `record` got."""
    sent = [*STRANGE[:2], {"role": "user", "content": "third"}]
    directory = conversation(tmp_path / "c", system_prompt="a header that is no message")
    assert cli("record", directory, stdin=lines(*sent)).code == 0
    jq = ["jq", "-c", ".message // empty", f"{directory}/transcript.jsonl"]
    done = subprocess.run(jq, capture_output=True, check=True)
    assert [json.loads(line) for line in done.stdout.split(b"\n") if line] == sent


def test_pretty_printed_json(cli: Cli, tmp_path: Path) -> None:
    """An object over several lines is refused at its first, and the error says how it is expected."""
    code, out, err = cli("record", str(tmp_path / "c"), stdin=json.dumps({"n": 1}, indent=2).encode())
    assert (code, out) == (1, "")
    assert "line 1: message: is not JSON" in err
    assert "one object a line" in err


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_an_acknowledgement_that_cannot_be_written(tmp_path: Path) -> None:
    """The message is stored all the same, and the error says so: sent again, it would be there twice."""
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [*COMMAND, "record", str(tmp_path / "c")],
            input=lines({"n": 1}, {"n": 2}),
            stdout=full,
            stderr=subprocess.PIPE,
            check=False,
            env=ENVIRONMENT,
        )
    assert done.returncode == 1
    assert b"message 1 is stored, but could not be acknowledged" in done.stderr
    assert b"No space left" in done.stderr
    assert done.stderr.count(b"\n") == 1
    assert stored(tmp_path / "c") == [{"n": 1}]


class FullDisk:
    """Refuses every write once so many bytes were written, also those of metadata.json: a disk that is full stays full."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, *, number: int, after_bytes: int, refuses: str = "write"
    ) -> None:
        self._left = after_bytes
        write, sync = filesystem.REAL.write, filesystem.REAL.sync_data

        def refusing_write(handle: int, data: Any) -> int:
            self._left -= len(data)
            if self._left < 0 and refuses == "write":
                raise OSError(number, os.strerror(number))
            return write(handle, data)

        def refusing_sync(handle: int) -> None:
            if self._left < 0 and refuses == "sync":
                raise OSError(number, os.strerror(number))
            sync(handle)

        monkeypatch.setattr(filesystem.REAL, "write", refusing_write)
        monkeypatch.setattr(filesystem.REAL, "sync_data", refusing_sync)


def test_a_full_disk(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """How many messages are stored and which line is not, once, and nothing that contradicts it.

    Found from outside: the command said of a full disk "nothing of it was stored" and then "every message is stored".
    """
    FullDisk(monkeypatch, number=errno.ENOSPC, after_bytes=12_000)
    code, out, err = cli("record", str(tmp_path / "c"), stdin=lines(*({"n": n} for n in range(1, 200))))
    last = int(out.splitlines()[-1])
    monkeypatch.undo()
    assert code == 1
    assert (
        f"{tmp_path}/c: {last} messages stored, line {last + 1} is not: No space left on device [ENOSPC]; "
        "free some space and try again\n" in err
    )
    assert "every message is stored" not in err
    assert "Nothing of it" not in err
    assert stored(tmp_path / "c") == [{"n": n} for n in range(1, last + 1)]
    assert cli("record", str(tmp_path / "c"), stdin=lines({"n": last + 1})) == (0, f"{last + 1}\n", "")


def test_a_disk_that_is_full_from_the_start(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is stored, and there is no conversation."""
    FullDisk(monkeypatch, number=errno.ENOSPC, after_bytes=0)
    code, out, err = cli("record", str(tmp_path / "c"), stdin=lines({"n": 1}))
    assert (code, out) == (1, "")
    assert "nothing stored, line 1 is not: No space left on device [ENOSPC]; free some space" in err
    monkeypatch.undo()
    assert not ConversationStore(tmp_path / "c").exists()


def test_a_sync_that_fails(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the line whose sync failed nothing is claimed."""
    FullDisk(monkeypatch, number=errno.EIO, after_bytes=5_000, refuses="sync")
    code, out, err = cli("record", str(tmp_path / "c"), stdin=lines(*({"n": n} for n in range(1, 200))))
    last = int(out.splitlines()[-1])
    assert code == 1
    assert f"{last} messages stored, line {last + 1} is in doubt: Input/output error [EIO]" in err
    assert f"`transcript-store show {tmp_path}/c` shows what is stored" in err


@pytest.mark.root
@pytest.mark.needs("mount")
def test_a_real_disk_that_is_full(cli: Cli, tmp_path: Path) -> None:
    """The same where the kernel refuses."""
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(tmp_path)], check=True)
    try:
        code, out, err = cli("record", str(tmp_path / "c"), stdin=lines(*({"n": n} for n in range(1, 2000))))
        last = int(out.splitlines()[-1])
        assert code == 1
        assert f"{last} messages stored, line {last + 1} is not: No space left on device [ENOSPC]" in err
        assert len(stored(tmp_path / "c")) == last
    finally:
        subprocess.run(["umount", "--lazy", str(tmp_path)], check=True)


def test_blank_lines_do_not_count_as_messages(cli: Cli, tmp_path: Path) -> None:
    """What was stored is counted, not what line it is."""
    code, _, err = cli("record", str(tmp_path / "c"), stdin=b"\n\nnonsense\n")
    assert code == 1
    assert "line 3: message: is not JSON" in err
    assert err.endswith("; nothing stored\n")
    code, _, err = cli("record", str(tmp_path / "c"), stdin=lines({"n": 1}) + b"\nnonsense\n")
    assert err.endswith("; 1 message stored\n")


@pytest.mark.parametrize("bad", [b'{"a":"\\ud800"}', b'{"a":{"b":NaN}}', b"[]"])
def test_a_first_line_that_is_no_message_creates_nothing(cli: Cli, tmp_path: Path, bad: bytes) -> None:
    """A lone surrogate was found out after the conversation had been created, and left an empty one."""
    code, out, err = cli("record", str(tmp_path / "c"), stdin=bad + b"\n")
    assert (code, out) == (1, "")
    assert "line 1: message" in err
    assert "messages[0]" not in err
    assert not (tmp_path / "c").exists()
