"""A failed export raises an error of ours, and leaves no file under a name that a program reads."""

from __future__ import annotations

import errno
import io
import itertools
import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.cli.helpers import COMMAND, ENVIRONMENT
from transcript_store import ConversationLibrary, ConversationStore, GenerationNotFoundError
from transcript_store.exporting import ExportError, export
from transcript_store.formats import WRITERS
from transcript_store.importing import import_conversations
from transcript_store.sources import find_sources

PROGRAMS = [writer.name for writer in WRITERS]
HI, HELLO = {"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"}


@pytest.fixture
def conversation(tmp_path: Path) -> Iterator[ConversationStore]:
    with ConversationLibrary(tmp_path / "chats").create(provider="claude", messages=[HI, HELLO]) as store:
        yield store


def refusal(conversation: ConversationStore, **arguments: Any) -> str | None:
    """Why an export was refused; None if it was not."""
    try:
        export(conversation, **arguments)
    except (ExportError, ValueError) as error:
        return str(error)
    return None


class Refusing:
    """Refuses the call of this number among those that make, name or sync files; counts all of them."""

    def __init__(self, number: int, error: int) -> None:
        self.number, self.error, self.seen = number, error, 0

    @contextmanager
    def __call__(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
        with monkeypatch.context() as patch:
            for name in ("open", "mkdir", "link", "fsync"):
                patch.setattr(os, name, self._refusing(getattr(os, name)))
            yield

    def _refusing(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def refusing(*arguments: Any, **named: Any) -> Any:
            self.seen += 1
            if self.seen == self.number:
                raise OSError(self.error, os.strerror(self.error))
            return call(*arguments, **named)

        return refusing


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO])
@pytest.mark.parametrize("to", [*PROGRAMS, "jsonl"])
def test_refused_anywhere_nothing_is_left(
    conversation: ConversationStore, tmp_path: Path, to: str, error: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At each call, also at the sync of a folder behind the name: no session, no piece of one; and the next try writes it."""
    refused = 0
    for number in itertools.count(1):
        output = tmp_path / f"out{number}" / "deep"
        refusing = Refusing(number, error)
        with refusing(monkeypatch):
            said = refusal(conversation, to=to, output=output)
        if said is None:
            break
        assert os.strerror(error) in said
        refused += 1
        assert [path for path in output.rglob("*") if path.is_file()] == []
        assert not output.is_file()
        assert all(os.path.exists(path) for path in export(conversation, to=to, output=output).paths)
    assert refused > 5


@pytest.mark.parametrize("to", PROGRAMS)
def test_a_disk_that_is_full_leaves_no_half_session(
    conversation: ConversationStore, tmp_path: Path, to: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bytes themselves do not fit, in the first file or in a later one."""
    real = os.open
    for fits in (0, 1):
        written = 0

        def full(path: Any, flags: int, mode: int = 0o777, fits: int = fits, **named: Any) -> int:
            nonlocal written
            if not str(path).endswith(".tmp"):
                return real(path, flags, mode, **named)
            written += 1
            return real(path, flags, mode) if written <= fits else real("/dev/full", os.O_WRONLY)

        output = tmp_path / f"out{fits}"
        with monkeypatch.context() as patch:
            patch.setattr(os, "open", full)
            said = refusal(conversation, to=to, output=output)
        if written <= fits:
            assert said is None
            continue
        assert "No space left on device" in str(said)
        assert [path for path in output.rglob("*") if path.is_file()] == []


@pytest.mark.root
@pytest.mark.parametrize("to", [*PROGRAMS, "jsonl", "markdown", "html"])
def test_a_real_disk_that_is_full(tmp_path: Path, to: str) -> None:
    """The command on a file system of 64 KB: one line of ours, exit code 1, and no session in the place."""
    with ConversationLibrary(tmp_path / "chats").create(messages=[HI, {**HELLO, "content": "x" * 100_000}]) as store:
        directory = store.directory
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", str(disk)], check=True)
    try:
        command = (*COMMAND, "export", directory, "--to", to, "--output", str(disk / "out"))
        done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout) == (1, "")
        assert "cannot be written: No space left on device" in done.stderr
        assert "Traceback" not in done.stderr
        assert [path for path in disk.rglob("*") if path.is_file()] == []
        assert list(find_sources(disk)) == []
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def test_what_is_not_there_is_told_before_the_first_byte(conversation: ConversationStore) -> None:
    """A generation, a record: the stream has got nothing, and a caller has not been asked."""
    conversation.replace_transcript([HI])
    got: list[object] = []

    class Stream:
        def writelines(self, pieces: Any, /) -> None:
            got.extend(pieces)

    wrong: list[tuple[dict[str, int], type[Exception], str]] = [
        ({"generation": 7}, GenerationNotFoundError, "there are 0, 1|there are 0 and 1"),
        ({"through_seq": 2}, ValueError, "there is no record 2: the conversation has 1 record$"),
        ({"through_seq": 3, "generation": 0}, ValueError, "there is no record 3: generation 0 has 2 records$"),
        ({"through_seq": 2, "generation": 1}, ValueError, "there is no record 2: the conversation has 1 record$"),
    ]
    for to in ("jsonl", "markdown", "html"):
        for options, error, said in wrong:
            with pytest.raises(error, match=said):
                export(conversation, to=to, output=Stream(), before_writing=got.append, **options)  # type: ignore[arg-type]
    assert got == []
    export(conversation, to="jsonl", output=Stream(), generation=0, through_seq=2)
    assert len(got) == 2


def test_a_path_is_no_conversation(conversation: ConversationStore) -> None:
    """Pages are written of a path, exports of a store that is loaded."""
    with pytest.raises(TypeError, match="must be a loaded ConversationStore, or a library with an id, not str"):
        export(conversation.directory, to="jsonl")  # type: ignore[arg-type]


@pytest.mark.parametrize("to", ["jsonl", "markdown", "claude-code"])
def test_what_is_no_redactor_is_told(conversation: ConversationStore, tmp_path: Path, to: str) -> None:
    """In a shell ``--redact`` says yes or no; here it is the redactor itself."""
    for call in (
        lambda: export(conversation, to=to, output=tmp_path / "out", redact=True),  # type: ignore[arg-type]
        lambda: import_conversations([tmp_path], ConversationLibrary(tmp_path / "l"), redact=True),  # type: ignore[arg-type]
    ):
        with pytest.raises(TypeError, match=r"redact must be a SecretRedactor, not bool: give SecretRedactor\(\)"):
            call()
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("to", ["jsonl", "markdown"])
def test_a_stream_of_text_is_no_output(conversation: ConversationStore, to: str) -> None:
    """Before a byte is written; else its own error would be the first that somebody reads."""
    with pytest.raises(TypeError, match=r"binary stream, but this is a text stream: pass its \.buffer"):
        export(conversation, to=to, output=io.TextIOWrapper(io.BytesIO()))  # type: ignore[arg-type]


@pytest.mark.parametrize("to", PROGRAMS)
def test_a_directory_that_is_not_there(conversation: ConversationStore, tmp_path: Path, to: str) -> None:
    """In the program's own place no session is left that could not be resumed; elsewhere it is for another machine."""
    home = {"HOME": str(tmp_path)}
    with pytest.raises(ValueError, match="there is no directory /nonexistent, in which the session would be resumed"):
        export(conversation, to=to, cwd="/nonexistent", environ=home)
    assert [path.name for path in tmp_path.iterdir()] == ["chats"]
    assert export(conversation, to=to, cwd="/nonexistent", output=tmp_path / "out").cwd == "/nonexistent"


HOSTILE = {
    "..": "/a/../../..",
    "dots": "/...",
    "root": "/",
    "backslash": "/a\\..\\..\\b",
    "colon": "/c:/x",
    "escape": "/\x1b[2J\n\t\u202e",
    "nul": "/a\0b",
    "long": "/" + "x" * 300,
    "deep": "/x" * (1 << 19),
    "not UTF-8": os.fsdecode(b"/\xff"),
}


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize("cwd", HOSTILE.values(), ids=HOSTILE)
@pytest.mark.parametrize("to", PROGRAMS)
def test_a_directory_of_any_name_stays_below_the_place(
    conversation: ConversationStore, tmp_path: Path, to: str, cwd: str
) -> None:
    """The name of a project's folder is made of it: whatever it is, files come below the output, or an error of ours does."""
    place = tmp_path / "place"
    said = refusal(conversation, to=to, cwd=cwd, output=place)
    assert len(said or "") < 1000
    paths = {str(path) for path in place.rglob("*") if path.is_file()}
    assert (said is None) == bool(paths)
    assert all(Path(path).is_relative_to(place) and ".." not in path.split("/") for path in paths)
    assert {path.name for path in tmp_path.iterdir()} <= {"chats", "place"}


@pytest.mark.parametrize("cwd", HOSTILE.values(), ids=HOSTILE)
def test_the_directory_that_a_source_names_counts_only_if_it_is_here(tmp_path: Path, cwd: str) -> None:
    """The label is what somebody else's file says. Nothing is made of it that is not there, and ``..`` is resolved."""
    labels = {"cwd": cwd.encode("utf-8", "replace").decode()[:1000].replace("\0", "?")}
    with ConversationLibrary(tmp_path / "chats").create(messages=[HI], labels=labels) as store:
        done = export(store, to="pi", output=tmp_path / "out")
    assert done.cwd in (os.getcwd(), os.path.realpath(labels["cwd"]))
    assert os.path.isdir(done.cwd or "")
