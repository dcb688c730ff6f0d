"""What a store meets in practice: the wrong folder, a damaged file, a full disk, somebody else's permissions.

Two incidents stand behind this file. A store that called "no valid header" the same as "no conversation" initialized a
fresh one over a file whose first block had been lost. And a store that met a FIFO where its file should have been waited
for a writer for ever. So: whatever is found, the answer is the right error, and what was found is left as it was.

``root`` marks what needs root (mounts, another user's permissions); root itself ignores file modes, so those tests run
as nobody.
"""

from __future__ import annotations

import errno
import json
import logging
import os
import shutil
import socket
import stat
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from transcript_store import (
    ConversationExistsError,
    ConversationLibrary,
    ConversationLockedError,
    ConversationNotFoundError,
    ConversationStore,
    CorruptMetadataError,
    CorruptTranscriptError,
    StorageError,
    TranscriptStoreError,
    verify,
)
from transcript_store._conversation.metadata import MetadataDocument, decode_document, encode_document

from .nobody import as_nobody

MESSAGES = [{"role": "user", "content": "one"}, {"role": "assistant", "content": "two"}]


def tree(directory: Path, *, but: tuple[str, ...] = ()) -> dict[str, tuple[int, bytes]]:
    """Everything below a path (itself too): its mode, and its bytes, its target or its names."""
    found: dict[str, tuple[int, bytes]] = {}
    paths = [directory, *sorted(directory.rglob("*"))] if directory.is_dir() else [directory]
    for path in paths:
        if path.name in but or not os.path.lexists(path):
            continue
        mode = path.lstat().st_mode
        content = b""
        if stat.S_ISREG(mode):
            content = path.read_bytes()
        elif stat.S_ISLNK(mode):
            content = os.readlink(os.fsencode(path))
        found[str(path)] = mode, content
    return found


def conversation_at(directory: Path) -> Path:
    """A whole conversation with two messages and an archive, its writer gone."""
    with ConversationStore(directory) as store:
        store.initialize(provider="claude", messages=[{"role": "user", "content": "before"}])
        store.replace_transcript(MESSAGES[:1])
        store.append_message(MESSAGES[1])
    return directory


@pytest.fixture
def conversation(tmp_path: Path) -> Path:
    return conversation_at(tmp_path / "c")


# ---- damage × operation ----------------------------------------------------------------------------------------------

CLAUDE_CODE = (
    b'{"parentUuid":null,"isSidechain":false,"userType":"external","cwd":"/home/u","sessionId":"0b0f","version":"2.0.1",'
    b'"type":"user","message":{"role":"user","content":"hi"},"uuid":"9a","timestamp":"2026-01-01T00:00:00.000Z"}\n'
    b'{"parentUuid":"9a","type":"assistant","message":{"role":"assistant","content":[{"type":"text","text":"hello"}]}}\n'
)


def _rewrite(name: str, change: Callable[[bytes], bytes]) -> Callable[[Path], None]:
    def damage(directory: Path) -> None:
        path = directory / name
        path.write_bytes(change(path.read_bytes()))

    return damage


def _metadata(**changes: Any) -> Callable[[bytes], bytes]:
    def change(data: bytes) -> bytes:
        document = decode_document(data)
        assert isinstance(document, MetadataDocument)
        return encode_document({**document.members, **changes}, document.mark)

    return change


def _remove(*names: str) -> Callable[[Path], None]:
    def damage(directory: Path) -> None:
        for name in names:
            (directory / name).unlink()

    return damage


def _only_quarantine(directory: Path) -> None:
    for entry in directory.iterdir():
        shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
    (directory / "quarantine").mkdir()
    (directory / "quarantine/g0-o1-00").write_bytes(b"{")


TRANSCRIPT, METADATA = "transcript.jsonl", "metadata.json"
DAMAGE: dict[str, tuple[Callable[[Path], None], type[TranscriptStoreError], str]] = {
    "empty transcript": (_rewrite(TRANSCRIPT, lambda d: b""), CorruptTranscriptError, "damaged-header"),
    "one line feed": (_rewrite(TRANSCRIPT, lambda d: b"\n"), CorruptTranscriptError, "foreign"),
    "header cut": (_rewrite(TRANSCRIPT, lambda d: d[:100]), CorruptTranscriptError, "damaged-header"),
    "header without its LF": (
        _rewrite(TRANSCRIPT, lambda d: d[: d.index(b"\n")]),
        CorruptTranscriptError,
        "damaged-header",
    ),
    "header overwritten": (
        _rewrite(TRANSCRIPT, lambda d: b"X" * d.index(b"\n") + d[d.index(b"\n") :]),
        CorruptTranscriptError,
        "foreign",
    ),
    "header's first block lost": (
        _rewrite(TRANSCRIPT, lambda d: bytes(200) + d[200:]),
        CorruptTranscriptError,
        "damaged-header",
    ),
    "header dropped": (
        _rewrite(TRANSCRIPT, lambda d: d[d.index(b"\n") + 1 :]),
        CorruptTranscriptError,
        "damaged-header",
    ),
    "garbage": (_rewrite(TRANSCRIPT, lambda d: bytes(range(256)) * 4), CorruptTranscriptError, "foreign"),
    "NULs": (_rewrite(TRANSCRIPT, lambda d: bytes(len(d))), CorruptTranscriptError, "foreign"),
    "somebody else's JSONL": (_rewrite(TRANSCRIPT, lambda d: CLAUDE_CODE), CorruptTranscriptError, "foreign"),
    "a word edited by hand": (
        _rewrite(TRANSCRIPT, lambda d: d.replace(b'"one"', b'"eins"')),
        CorruptTranscriptError,
        "damaged-line",
    ),
    "saved by an editor with CR LF": (
        _rewrite(TRANSCRIPT, lambda d: d.replace(b"\n", b"\r\n")),
        CorruptTranscriptError,
        "damaged-header",
    ),
    "cut at a line": (
        _rewrite(TRANSCRIPT, lambda d: d[: d.index(b"\n") + 1]),
        CorruptTranscriptError,
        "truncated",
    ),
    "transcript removed": (_remove(TRANSCRIPT), CorruptTranscriptError, "missing"),
    "only the archive left": (_remove(TRANSCRIPT, METADATA), CorruptTranscriptError, "missing"),
    "only a quarantine left": (_only_quarantine, CorruptTranscriptError, "missing"),
    "metadata removed": (_remove(METADATA), CorruptMetadataError, "missing"),
    "metadata empty": (_rewrite(METADATA, lambda d: b""), CorruptMetadataError, "damaged"),
    "metadata cut": (_rewrite(METADATA, lambda d: d[:-30]), CorruptMetadataError, "damaged"),
    "metadata edited by hand": (
        _rewrite(METADATA, lambda d: d.replace(b"claude", b"openai")),
        CorruptMetadataError,
        "damaged",
    ),
    "metadata of something else": (_rewrite(METADATA, lambda d: b'{"name":"x"}\n'), CorruptMetadataError, "damaged"),
    "metadata of another conversation": (
        _rewrite(METADATA, _metadata(id="00000000-0000-4000-8000-000000000000")),
        CorruptTranscriptError,
        "wrong-conversation",
    ),
    "metadata of a later generation": (
        _rewrite(METADATA, _metadata(generation=2)),
        CorruptTranscriptError,
        "wrong-generation",
    ),
}


def _load(store: ConversationStore) -> None:
    store.load()


def _load_or_initialize(store: ConversationStore) -> None:
    store.load_or_initialize(messages=[{"never": "stored"}])


@pytest.mark.parametrize("name", DAMAGE)
def test_a_damaged_conversation_is_refused_and_left_alone(conversation, name):
    """P13: whatever is damaged, each operation gives the right error of the right kind, again and again, and changes nothing."""
    damage, error, kind = DAMAGE[name]
    damage(conversation)
    before = tree(conversation)

    store = ConversationStore(conversation)
    assert store.exists()
    with pytest.raises(ConversationExistsError) as caught:
        store.initialize(messages=MESSAGES)
    assert caught.value.path == str(conversation)
    found = verify(conversation)
    assert found.findings
    assert kind in {finding.kind for finding in found.findings}
    assert tree(conversation) == before

    for operation in (_load, _load_or_initialize):
        for read_only in (True, False, False):  # the second writer finds the lock free: a refused load holds nothing
            store = ConversationStore(conversation, read_only=read_only)
            with pytest.raises(error) as refused:
                operation(store)
            assert type(refused.value) is error
            assert refused.value.kind == kind  # type: ignore[attr-defined]
            assert str(conversation) in str(refused.value)
            if not read_only:
                # A writer takes the lock before it looks, and signs it: nothing else may differ.
                before.pop(f"{conversation}/lock", None)
                assert tree(conversation, but=("lock",)) == before
                before = tree(conversation)
            assert tree(conversation) == before


def test_a_line_edited_by_hand_is_named(conversation):
    """P10: the error says which line and which byte, so that the editor's user can undo the edit; undone, it loads."""
    path = conversation / TRANSCRIPT
    data = path.read_bytes()
    path.write_bytes(data.replace(b'"one"', b'"ONE"'))
    with pytest.raises(CorruptTranscriptError) as caught:
        ConversationStore(conversation).load()
    assert (caught.value.line_number, caught.value.offset_bytes) == (2, data.index(b"\n") + 1)
    path.write_bytes(data)
    with ConversationStore(conversation) as store:
        store.load()
        assert store.get_messages() == MESSAGES


def test_a_refused_load_of_somebody_elses_folder_leaves_no_lock_in_it(tmp_path):
    """P13: a folder that holds a foreign transcript.jsonl (a common name) gets no file of ours when load() refuses it."""
    (tmp_path / TRANSCRIPT).write_bytes(CLAUDE_CODE)
    (tmp_path / "notes.txt").write_text("mine")
    before = tree(tmp_path)
    with pytest.raises((CorruptTranscriptError, CorruptMetadataError)):
        ConversationStore(tmp_path).load()
    assert tree(tmp_path) == before


# ---- the wrong place -------------------------------------------------------------------------------------------------


def test_a_folder_of_another_program(tmp_path):
    """P13: a folder with other files in it is never made into a conversation, and never changed."""
    (tmp_path / "main.py").write_text("print()")
    (tmp_path / "src").mkdir()
    (tmp_path / "src/metadata.json").write_text("{}")
    before = tree(tmp_path)
    for read_only in (False, True):
        with pytest.raises(CorruptTranscriptError) as caught:
            ConversationStore(tmp_path, read_only=read_only).load()
        assert caught.value.kind == "foreign"
        assert "main.py" in str(caught.value)
    with pytest.raises(ConversationExistsError, match=r"main\.py"):
        ConversationStore(tmp_path).initialize()
    with pytest.raises(CorruptTranscriptError):
        ConversationStore(tmp_path).load_or_initialize()
    assert ConversationStore(tmp_path).exists()
    assert not verify(tmp_path).is_whole
    assert tree(tmp_path) == before


@pytest.mark.parametrize("below", ["", "/child", "/child/grandchild"])
def test_a_file_where_a_folder_should_be(tmp_path, below):
    """P13: a path that is a file, or leads through one, is refused by every operation, and the file is left alone."""
    (tmp_path / "file").write_text("mine")
    path = f"{tmp_path}/file{below}"
    before = tree(tmp_path)
    store = ConversationStore(path)
    assert store.exists()
    with pytest.raises(ConversationExistsError):
        store.initialize()
    for operation in (_load, _load_or_initialize):
        with pytest.raises(CorruptTranscriptError) as caught:
            operation(store)
        assert caught.value.kind == "foreign"
    assert [finding.kind for finding in verify(path).findings] == ["foreign"]
    assert tree(tmp_path) == before


def test_nothing_there(tmp_path):
    """P13: of a path with nothing at it load says so, and makes nothing; verify too."""
    for path in (tmp_path, tmp_path / "c", tmp_path / "a/b/c"):
        for read_only in (True, False):
            with pytest.raises(ConversationNotFoundError) as caught:
                ConversationStore(path, read_only=read_only).load()
            assert caught.value.path == str(path)
    with pytest.raises(ConversationNotFoundError):
        verify(tmp_path / "c")
    assert not list(tmp_path.iterdir())


def test_a_second_writer_is_told_who_holds_it(conversation):
    """P11: a second writer gets an error that names the holder, and may read all the same."""
    with ConversationStore(conversation) as first:
        first.load()
        with pytest.raises(ConversationLockedError, match=f"process {os.getpid()}") as caught:
            ConversationStore(conversation).load()
        assert caught.value.holder_pid == os.getpid()
        assert caught.value.holder_host == os.uname().nodename
        assert caught.value.path == str(conversation)
        with ConversationStore(conversation, read_only=True) as reader:
            reader.load()
            assert reader.get_messages() == MESSAGES
        first.append_message({"still": "mine"})


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"pid":"x","host":7}', bytes(100_000), b"\xff" * 5000])
def test_a_lock_file_with_anything_in_it(conversation, content):
    """P11, P15: what stands in the lock file only helps an error message; no content of it does any harm."""
    with ConversationStore(conversation) as first:
        first.load()
        (conversation / "lock").write_bytes(content)
        with pytest.raises(ConversationLockedError) as caught:
            ConversationStore(conversation).load()
        assert caught.value.holder_pid is None
    with ConversationStore(conversation) as second:
        second.load()


# ---- links, FIFOs, directories ---------------------------------------------------------------------------------------


def _symlink(path: Path, target: Path) -> None:
    if path.is_dir():
        path.rename(target)
    elif path.exists():
        shutil.copyfile(path, target)
        path.unlink()
    else:
        target.mkdir()
    path.symlink_to(target)


def _dangling(path: Path, target: Path) -> None:
    shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    path.symlink_to(target)


def _fifo(path: Path, target: Path) -> None:
    shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    os.mkfifo(path)


def _directory(path: Path, target: Path) -> None:
    path.unlink(missing_ok=True)
    path.mkdir()
    (path / "inside").write_text("mine")


def _socket(path: Path, target: Path) -> None:
    shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX) as server:
        here = os.getcwd()
        os.chdir(path.parent)  # a socket's path may have 107 characters
        try:
            server.bind(path.name)
        finally:
            os.chdir(here)


IMPOSTORS = [_symlink, _dangling, _fifo, _directory, _socket]


@pytest.mark.timeout(60)
@pytest.mark.parametrize("impostor", IMPOSTORS)
@pytest.mark.parametrize(
    ("name", "error"),
    [(TRANSCRIPT, CorruptTranscriptError), (METADATA, CorruptMetadataError), ("lock", CorruptTranscriptError)],
)
def test_what_is_not_a_file_is_neither_followed_nor_waited_for(conversation, tmp_path, name, error, impostor):
    """P16: a link, FIFO, directory or socket in the place of a file of ours is refused at once, its target untouched."""
    impostor(conversation / name, tmp_path / "target")
    before = tree(tmp_path, but=("lock",) if name != "lock" else ())
    for operation in (_load, _load_or_initialize):
        with pytest.raises(error) as caught:
            operation(ConversationStore(conversation))
        assert caught.value.kind == "foreign"
    reader = ConversationStore(conversation, read_only=True)
    if name == "lock":
        reader.load()  # a reader needs no lock
        assert reader.get_messages() == MESSAGES
        reader.close()
    else:
        with pytest.raises(error):
            reader.load()
        assert "foreign" in {finding.kind for finding in verify(conversation).findings}
    with pytest.raises(ConversationExistsError):
        ConversationStore(conversation).initialize()
    assert tree(tmp_path, but=("lock",) if name != "lock" else ()) == before


@pytest.mark.timeout(60)
@pytest.mark.parametrize("impostor", [_symlink, _dangling, _fifo, _socket])
def test_an_archive_that_is_not_a_directory(conversation, tmp_path, impostor):
    """P16: a link, FIFO or socket named archive is not followed: an error of ours, and nothing is put where it leads."""
    impostor(conversation / "archive", tmp_path / "target")
    before = tree(tmp_path, but=("lock",))
    with pytest.raises(TranscriptStoreError):
        ConversationStore(conversation).load()
    with ConversationStore(conversation, read_only=True) as reader:
        reader.load()
        assert reader.get_messages() == MESSAGES
    assert tree(tmp_path, but=("lock",)) == before


@pytest.mark.timeout(60)
@pytest.mark.parametrize("impostor", [_symlink, _dangling, _fifo, _socket])
def test_verify_reports_an_archive_that_is_not_a_directory(conversation, tmp_path, impostor):
    """P16: verify() lists what stands in the archive's place as foreign; it neither follows it nor gives up."""
    impostor(conversation / "archive", tmp_path / "target")
    assert "foreign" in {finding.kind for finding in verify(conversation).findings}


@pytest.mark.timeout(60)
@pytest.mark.parametrize("impostor", [_symlink, _dangling, _fifo, _socket])
def test_a_torn_tail_that_cannot_be_quarantined_is_not_cut(conversation, tmp_path, impostor):
    """P7, P16: where quarantine/ is a link, FIFO or socket, load() says so and cuts nothing; a reader still reads."""
    impostor(conversation / "quarantine", tmp_path / "target")
    with open(conversation / TRANSCRIPT, "ab") as file:
        file.write(b'{"seq":3,"at"')
    before = tree(tmp_path, but=("lock",))
    with pytest.raises(StorageError, match="open it with read_only=True, which gives every whole record"):
        ConversationStore(conversation).load()
    with ConversationStore(conversation, read_only=True) as reader:
        reader.load()
        assert reader.get_messages() == MESSAGES
    assert tree(tmp_path, but=("lock",)) == before
    (conversation / "quarantine").unlink()
    with ConversationStore(conversation) as store:
        store.load()
        assert store.recovery is not None
        assert store.recovery.torn_bytes == 13


def test_a_link_planted_where_a_file_will_be_put(tmp_path):
    """P16: initialize() writes through no link: a planted one is refused, or replaced without touching its target."""
    target = tmp_path / "target"
    target.write_text("mine")
    for name in ("lock", METADATA, TRANSCRIPT, ".tmp-" + "0" * 32):
        directory = tmp_path / name.strip(".")
        directory.mkdir()
        (directory / name).symlink_to(target)
        store = ConversationStore(directory)
        try:
            store.initialize()
        except TranscriptStoreError:
            assert list(directory.iterdir()) == [directory / name]
        else:
            assert not (directory / name).is_symlink()
        store.close()
        assert target.read_text() == "mine"


def test_a_lock_that_is_a_hard_link_is_locked_and_not_written(conversation, tmp_path):
    """P16: a foreign file that somebody linked to the lock's name keeps its bytes; the lock holds all the same."""
    mine = tmp_path / "mine"
    mine.write_text("mine")
    (conversation / "lock").unlink()
    os.link(mine, conversation / "lock")
    with ConversationStore(conversation) as store:
        store.load()
        with pytest.raises(ConversationLockedError):
            ConversationStore(conversation).load()
    assert mine.read_text() == "mine"


def test_a_foreign_hard_link_is_warned_of(conversation, tmp_path, caplog):
    """P16: a second name of the transcript is warned of at load; the archive's own links, after a replace, are not."""
    with caplog.at_level(logging.WARNING, logger="transcript_store"):
        with ConversationStore(conversation) as store:
            store.load()
            store.replace_transcript(MESSAGES)
        with ConversationStore(conversation) as store:
            store.load()
        assert not caplog.records
        os.link(conversation / TRANSCRIPT, tmp_path / "second")
        with ConversationStore(conversation) as store:
            store.load()
        assert "hard link" in caplog.text


@pytest.mark.parametrize("bad", ["", "\0", "a\0b"])
def test_a_path_that_names_nothing(bad):
    """P15: an empty path and one with a NUL are refused when the store is made, before anything is touched."""
    with pytest.raises(ValueError, match="path"):
        ConversationStore(bad)
    with pytest.raises(ValueError, match="path"):
        verify(bad)


def test_a_name_that_is_too_long_for_the_file_system(tmp_path):
    """P7: a name that the file system cannot carry is an error of ours, and nothing is left behind."""
    store = ConversationStore(tmp_path / ("x" * 300))
    for operation in (store.exists, store.load, store.initialize, lambda: verify(store.directory)):
        with pytest.raises(StorageError) as caught:
            operation()
        assert caught.value.errno == errno.ENAMETOOLONG
    assert not list(tmp_path.iterdir())


def test_a_loop_of_links(tmp_path):
    """P7: a path through links that lead to each other is an error of ours from every operation."""
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    store = ConversationStore(tmp_path / "a")
    for operation in (store.exists, store.load, store.initialize, store.load_or_initialize):
        with pytest.raises(StorageError) as caught:
            operation()
        assert caught.value.errno == errno.ELOOP


# ---- limits of the process -------------------------------------------------------------------------------------------


def child(script: str, *arguments: object) -> str:
    """Run a script in a fresh interpreter; returns what it printed."""
    command = [sys.executable, "-c", textwrap.dedent(script), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_file_size_limit_at_every_byte_of_a_record(conversation):
    """P7: RLIMIT_FSIZE tears a write at an exact byte: at every byte of a record and of a batch an append is an error,
    stores nothing and leaves everything before intact; and once the limit is raised the same store goes on.
    """
    printed = child(
        """
        import errno, os, resource, sys
        from transcript_store import ConversationStore, StorageError, verify
        store = ConversationStore(sys.argv[1])
        store.load()
        path = sys.argv[1] + "/transcript.jsonl"
        hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
        messages, torn, fine = store.get_messages(), 0, 0
        for batch in ([{"n": 1}], [{"n": 2}, {"n": 3}]):
            length = sum(appended.length_bytes for appended in store.append_messages(batch))
            messages += batch
            for over in range(length + 1):
                before = open(path, "rb").read()
                resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + over, hard))
                try:
                    appended = store.append_messages(batch)
                    messages += batch
                    fine += 1
                    assert over >= sum(a.length_bytes for a in appended)
                except StorageError as error:
                    assert error.errno == errno.EFBIG, error
                    assert "Nothing of it was stored" in str(error), error
                    assert open(path, "rb").read() == before
                    torn += 1
                assert store.get_messages() == messages
                resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
                store.append_messages(batch[:1])
                messages += batch[:1]
                length = max(length, len(batch) * 110)
        store.close()
        store.load()
        assert store.recovery is None
        assert store.get_messages() == messages
        assert verify(sys.argv[1]).is_whole
        print(torn, fine)
        """,
        conversation,
    )
    torn, fine = map(int, printed.split())
    assert torn > 250
    assert fine >= 1


def test_no_file_descriptor_left(conversation):
    """P7: without a descriptor to spare appends go on, what needs one is refused with EMFILE, and works once there is one."""
    child(
        """
        import errno, os, resource, sys
        from transcript_store import ConversationStore, StorageError, verify
        def refused(call):
            try:
                call()
            except StorageError as error:
                assert error.errno == errno.EMFILE, error
                return
            raise AssertionError("not refused")
        store = ConversationStore(sys.argv[1])
        store.load()
        messages = store.get_messages()
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        def exhaust(spare=0):
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            free = [n for n in range(100) if not os.path.exists(f"/proc/self/fd/{n}")]
            resource.setrlimit(resource.RLIMIT_NOFILE, (free[spare], hard))
        for round in range(3):
            exhaust()
            store.append_message({"n": round})
            messages.append({"n": round})
            assert store.get_messages() == messages
            refused(lambda: store.update_metadata(model="x"))
            assert store.get_metadata().model is None
            refused(lambda: store.replace_transcript([]))
            refused(ConversationStore(sys.argv[1], read_only=True).load)
            refused(ConversationStore(sys.argv[1]).exists)
            refused(lambda: verify(sys.argv[1]))
            for spare in range(1, 6):
                exhaust(spare)
                try:
                    store.replace_transcript([])
                except StorageError as error:
                    assert error.errno == errno.EMFILE, error
                else:
                    messages = []
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            assert store.get_messages() == messages
            store.append_message({"after": round})
            messages.append({"after": round})
        store.close()
        store.load()
        assert store.get_messages() == messages
        assert verify(sys.argv[1]).is_whole, verify(sys.argv[1])
        """,
        conversation,
    )


@pytest.mark.parametrize("operation", ["load", "initialize"])
@pytest.mark.parametrize("spare", range(6))
def test_few_file_descriptors_left_from_the_start(conversation, tmp_path, spare, operation):
    """P7: with any number of descriptors to spare, a first load() or initialize() works or is refused with EMFILE."""
    directory = conversation if operation == "load" else tmp_path / "new"
    child(
        """
        import errno, os, resource, sys
        from transcript_store import ConversationStore, StorageError
        store = ConversationStore(sys.argv[1])
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        free = [n for n in range(100) if not os.path.exists(f"/proc/self/fd/{n}")]
        resource.setrlimit(resource.RLIMIT_NOFILE, (free[int(sys.argv[2])], hard))
        try:
            getattr(store, sys.argv[3])()
        except StorageError as error:
            assert error.errno == errno.EMFILE, error
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        store.close()
        store.load_or_initialize()
        store.append_message({"n": 1})
        """,
        directory,
        spare,
        operation,
    )
    assert verify(directory).is_whole


# ---- other users, full disks, read-only mounts: as root --------------------------------------------------------------


@pytest.fixture
def open_directory() -> Iterator[Path]:
    """A directory that everybody can reach, which pytest's own are not."""
    with tempfile.TemporaryDirectory() as directory:
        os.chmod(directory, 0o755)
        yield Path(directory)


ALL_REFUSED = """
    import errno, sys
    from transcript_store import ConversationStore, StorageError, verify
    path, number = sys.argv[1], int(sys.argv[2])
    store = ConversationStore(path)
    reader = ConversationStore(path, read_only=True)
    for call in (store.exists, store.load, store.initialize, store.load_or_initialize, reader.load, lambda: verify(path)):
        try:
            call()
        except StorageError as error:
            assert error.errno == number, error
            assert path in str(error), error
        else:
            raise AssertionError(call)
    """


@pytest.mark.root
@pytest.mark.parametrize("mode", [0o000, 0o700])
def test_a_folder_that_is_not_ours_to_enter(open_directory, mode):
    """P7: without permission to enter the folder every operation is refused with EACCES, and nothing is touched."""
    conversation = conversation_at(open_directory / "c")
    conversation.chmod(mode)  # root's
    before = tree(open_directory)
    child(as_nobody(ALL_REFUSED), conversation, errno.EACCES)
    assert tree(open_directory) == before


@pytest.mark.root
def test_a_parent_folder_that_is_not_ours_to_write(open_directory):
    """P7: where a folder cannot be made, initialize() says so and that there is no conversation, and so does exists()."""
    child(
        as_nobody("""
        import errno, sys
        from transcript_store import ConversationStore, StorageError
        store = ConversationStore(sys.argv[1])
        assert not store.exists()
        try:
            store.initialize()
        except StorageError as error:
            assert error.errno == errno.EACCES
            assert "There is none yet" in str(error)
        else:
            raise AssertionError
        """),
        open_directory / "a/b",
    )
    assert not list(open_directory.iterdir())


@pytest.mark.root
def test_a_conversation_that_is_ours_to_read_only(open_directory):
    """P7, P12: whoever may only read gets an error that points to read_only=True, and with it every message."""
    conversation = conversation_at(open_directory / "c")
    for path in [conversation, *conversation.rglob("*")]:
        path.chmod(0o755 if path.is_dir() else 0o644)
    before = tree(open_directory)
    child(
        as_nobody("""
        import errno, sys
        from transcript_store import ConversationStore, StorageError, verify
        try:
            ConversationStore(sys.argv[1]).load()
        except StorageError as error:
            assert error.errno == errno.EACCES
            assert "read_only=True" in str(error)
        else:
            raise AssertionError
        with ConversationStore(sys.argv[1], read_only=True) as reader:
            reader.load()
            assert len(reader.get_messages()) == 2
            assert reader.refresh() == (0, False)
        assert verify(sys.argv[1]).is_whole
        """),
        conversation,
    )
    assert tree(open_directory) == before


@pytest.mark.root
def test_a_folder_that_loses_its_permissions_under_a_writer(open_directory):
    """P7: a writer whose folder becomes read-only goes on appending, is refused what needs a new name, and recovers."""
    os.chown(open_directory, 65534, 65534)
    child(
        as_nobody("""
        import errno, os, sys
        from transcript_store import ConversationStore, StorageError, verify
        path = sys.argv[1]
        store = ConversationStore(path)
        store.initialize(model="old")
        os.chmod(path, 0o500)
        store.append_message({"n": 1})
        for call in (lambda: store.update_metadata(model="new"), lambda: store.replace_transcript([])):
            try:
                call()
            except StorageError as error:
                assert error.errno == errno.EACCES
                assert "in place and intact" in str(error)
            else:
                raise AssertionError
            assert store.get_messages() == [{"n": 1}]
            assert store.get_metadata().model == "old"
        store.append_message({"n": 2})
        store.close()                        # the mark cannot be renewed, and that is no error
        store.load()
        store.append_message({"n": 3})
        os.chmod(path, 0o700)
        store.replace_transcript([{"n": 4}], model="new")
        assert store.get_messages() == [{"n": 4}]
        store.close()
        assert verify(path).is_whole
        """),
        open_directory / "c",
    )


@pytest.fixture
def tiny_disk(open_directory) -> Iterator[Path]:
    """A file system of 512 KiB."""
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=512k", "tmpfs", str(open_directory)], check=True)
    yield open_directory
    subprocess.run(["umount", str(open_directory)], check=True)


def fill(disk: Path, spare_pages: int) -> Path:
    """Leave so many pages free."""
    filler = disk / "filler"
    page = os.statvfs(disk).f_bsize
    with open(filler, "wb", buffering=0) as file:
        with pytest.raises(OSError, match="No space"):
            while True:
                file.write(bytes(page))
        file.truncate(file.tell() - spare_pages * page)
    return filler


def refused(operation: Callable[[], object]) -> bool:
    """Whether the full disk refused an operation, in the words that the errors have."""
    try:
        operation()
    except StorageError as error:
        if error.errno != errno.ENOSPC or "free some space" not in str(error):
            raise
        return True
    return False


BIG = {"role": "user", "content": "x" * 10_000}
FULL: dict[str, Callable[[ConversationStore], object]] = {
    "append_message": lambda store: store.append_message(BIG),
    "append_messages": lambda store: store.append_messages([BIG, BIG]),
    "replace_transcript": lambda store: store.replace_transcript([BIG, BIG], model="new"),
    "update_metadata": lambda store: store.update_metadata(model="new", system_prompt="x" * 10_000),
}


@pytest.mark.root
@pytest.mark.parametrize("operation", FULL)
def test_a_full_disk(tiny_disk, operation):
    """P7: with any number of pages left an operation works, or is refused with ENOSPC and changes nothing; with space
    again the same store goes on.
    """
    operate = FULL[operation]
    refusals = successes = 0
    for spare in range(16):
        directory = tiny_disk / f"c{spare}"
        store = ConversationStore(directory)
        store.initialize(model="old", messages=MESSAGES)
        filler = fill(tiny_disk, spare)
        if refused(lambda: operate(store)):  # noqa: B023  # called at once
            refusals += 1
            filler.unlink()
            assert store.get_messages() == MESSAGES
            assert store.get_metadata().model == "old"
            operate(store)
        else:
            successes += 1
            filler.unlink()
        messages = store.get_messages()
        store.append_message({"last": 1})
        store.close()
        assert verify(directory).is_whole
        store.load()
        assert store.get_messages() == [*messages, {"last": 1}]
        assert store.recovery is None
        store.close()
        shutil.rmtree(directory)
    assert refusals >= 2
    assert successes >= 2


@pytest.mark.root
def test_initialize_on_a_full_disk(tiny_disk):
    """P7: initialize() on a full disk is refused and leaves nothing in its own way; close() there is no error."""
    refusals = 0
    for spare in range(12):
        directory = tiny_disk / f"c{spare}"
        store = ConversationStore(directory)
        filler = fill(tiny_disk, spare)
        if refused(lambda: store.initialize(messages=[BIG])):  # noqa: B023  # called at once
            refusals += 1
            assert not store.exists()
            filler.unlink()
            store.initialize(messages=[BIG])
        store.append_message({"n": 1})
        filler = fill(tiny_disk, 0)
        store.close()
        filler.unlink()
        assert verify(directory).is_whole
        shutil.rmtree(directory)
    assert refusals >= 3


@pytest.mark.root
def test_a_torn_tail_on_a_full_disk(tiny_disk):
    """P7: a torn tail that cannot be kept is not cut; load() says so, a reader reads, and with space the load works."""
    with ConversationStore(tiny_disk / "c") as store:
        store.initialize(messages=MESSAGES)
    with open(tiny_disk / "c" / TRANSCRIPT, "ab") as file:
        file.write(b"{" * 9000)
    filler = fill(tiny_disk, 0)
    before = tree(tiny_disk / "c", but=("lock",))
    with pytest.raises(StorageError, match="not cut") as caught:
        ConversationStore(tiny_disk / "c").load()
    assert caught.value.errno == errno.ENOSPC
    with ConversationStore(tiny_disk / "c", read_only=True) as reader:
        reader.load()
        assert reader.get_messages() == MESSAGES
    after = tree(tiny_disk / "c", but=("lock", "quarantine"))
    assert after == before
    filler.unlink()
    with ConversationStore(tiny_disk / "c") as store:
        store.load()
        assert store.recovery is not None
        assert store.recovery.torn_bytes == 9000
    assert verify(tiny_disk / "c").is_whole


@pytest.mark.root
def test_a_read_only_mount(open_directory, tmp_path):
    """P7, P12: on a read-only mount reading and verifying work; a writer is told of read_only=True; nothing changes."""
    conversation_at(tmp_path / "c")
    subprocess.run(["mount", "--bind", str(tmp_path), str(open_directory)], check=True)
    try:
        subprocess.run(["mount", "-o", "remount,bind,ro", str(open_directory)], check=True)
        before = tree(tmp_path)
        with ConversationStore(open_directory / "c", read_only=True) as reader:
            reader.load()
            assert reader.get_messages() == MESSAGES
            assert reader.refresh() == (0, False)
        assert verify(open_directory / "c").is_whole
        for operation in (_load, _load_or_initialize):
            with pytest.raises(StorageError, match="read_only=True") as caught:
                operation(ConversationStore(open_directory / "c"))
            assert caught.value.errno == errno.EROFS
        with pytest.raises(StorageError) as caught:
            ConversationStore(open_directory / "new").initialize()
        assert caught.value.errno == errno.EROFS
        with pytest.raises(ConversationExistsError):
            ConversationStore(open_directory / "c").initialize()
        assert tree(tmp_path) == before
    finally:
        subprocess.run(["umount", str(open_directory)], check=True)


@pytest.mark.root
@pytest.mark.parametrize("attribute", ["i", "a"])
def test_a_transcript_that_is_immutable(open_directory, attribute):
    """P7: chattr +i refuses the writer with a hint at lsattr; chattr +a lets it append, but not cut a torn tail."""
    conversation = conversation_at(open_directory / "c")
    path = conversation / TRANSCRIPT
    if attribute == "a":
        with open(path, "ab") as file:
            file.write(b'{"torn')
    data = path.read_bytes()
    subprocess.run(["chattr", f"+{attribute}", str(path)], check=True)
    try:
        with pytest.raises(StorageError, match="lsattr") as caught:
            ConversationStore(conversation).load()
        assert caught.value.errno == errno.EPERM
        with ConversationStore(conversation, read_only=True) as reader:
            reader.load()
            assert reader.get_messages() == MESSAGES
        assert path.read_bytes() == data
    finally:
        subprocess.run(["chattr", f"-{attribute}", str(path)], check=True)
    with ConversationStore(conversation) as store:
        store.load()
        store.append_message({"again": True})
    assert verify(conversation).is_whole


def test_the_foreign_file_used_here_is_one():
    """The table itself: the foreign JSONL is JSON on every line, so that only its content can have it refused."""
    lines = [json.loads(line) for line in CLAUDE_CODE.split(b"\n")[:-1]]
    assert [line["message"]["role"] for line in lines] == ["user", "assistant"]


def test_a_library_is_not_called_damaged(tmp_path):
    """Incident: the folder of a library, given as a conversation, was called corrupt, with repair as the way out."""
    with ConversationLibrary(tmp_path).create():
        pass
    with pytest.raises(CorruptTranscriptError, match="the folder is a library of conversations") as caught:
        ConversationStore(tmp_path).load()
    assert caught.value.kind == "foreign"
    assert "repair" not in str(caught.value)
