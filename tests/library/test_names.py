"""A hostile id never reaches the disk, and foreign folders are not followed."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.kit.cases import for_each
from tests.kit.trees import tree
from tests.library.helpers import ID, make
from transcript_store import (
    ConversationExistsError,
    ConversationLibrary,
    CorruptTranscriptError,
    InvalidIdError,
    StorageError,
    list_conversations,
)
from transcript_store.testing import SimulatedFileSystem

HOSTILE = [
    "",
    ".",
    "..",
    "../" + ID,
    ID + "/..",
    ID + "/",
    "/" + ID,
    "/etc/passwd",
    ID.upper(),
    ID + "\n",
    ID + "\0",
    "\0",
    " " + ID,
    ID[:-1],
    ID + "0",
    ID.replace("-", ""),
    "{" + ID + "}",
    "urn:uuid:" + ID,
    ID.replace("0", "٠"),
    ID.replace("a", "\ud800"),
    ".trash-" + "0" * 32,
    "x" * 100_000,
    ID.encode(),
    None,
    7,
    uuid.UUID(ID),
    Path(ID),
    type("Sly", (str,), {"__format__": lambda self, spec: "../../etc"})(ID),
]


@for_each("chat", HOSTILE)
def test_a_hostile_id_never_reaches_the_disk(chat):
    """P16: an id is looked at before a path is made of it: not one call to the file system is made."""
    disk = SimulatedFileSystem()
    library = ConversationLibrary("/chats", file_system=disk)
    make(library, "a", id=ID)
    calls = disk.calls_made
    acts: list[Callable[[Any], object]] = [library.open, library.fork, library.delete, library.verify]
    if chat is not None:  # a create without an id makes one
        acts.append(lambda given: library.create(id=given))
    for act in acts:
        with pytest.raises(InvalidIdError) as refused:
            act(chat)
        assert len(str(refused.value)) < 200
    assert disk.calls_made == calls


@pytest.mark.parametrize("leads_to", ["a conversation", "an empty folder", "nowhere"])
def test_a_link_is_not_followed(tmp_path, library, root, leads_to):
    """P16: a link in the library is not a conversation of it, wherever it leads: not listed, opened, forked, deleted,
    nor created through.
    """
    make(library, "a")
    elsewhere = tmp_path / "elsewhere"
    if leads_to == "a conversation":
        make(ConversationLibrary(elsewhere), "secret", id=ID)
    elif leads_to == "an empty folder":
        (elsewhere / ID).mkdir(parents=True)
    (root / ID).symlink_to(elsewhere / ID)
    before = tree(tmp_path)
    assert [summary.id for summary in library.list()] != [ID]
    assert len(library.list()) == len(list_conversations(root)) == 1
    for act in (library.open, library.fork, library.delete, library.verify):
        with pytest.raises(CorruptTranscriptError, match="a symbolic link is in the place of") as refused:
            act(ID)
        assert refused.value.kind == "foreign"
    with pytest.raises(ConversationExistsError, match="symbolic link"):
        library.create(id=ID)
    assert tree(tmp_path) == before


def test_a_file_in_a_folders_place_is_not_ours(library, root):
    """A file that is called like a conversation is passed over, and never overwritten or deleted."""
    make(library, "a")
    (root / ID).write_bytes(b"mine")
    assert len(library.list()) == 1
    for act in (library.open, library.fork, library.delete):
        with pytest.raises(CorruptTranscriptError, match="a file is in the place of"):
            act(ID)
    with pytest.raises(ConversationExistsError, match="a file is in the place of"):
        library.create(id=ID)
    assert (root / ID).read_bytes() == b"mine"


def test_a_library_that_is_a_file(tmp_path):
    """A file in the library's place is not an empty library: every call names it, and nothing can be made in it."""
    (tmp_path / "chats").write_bytes(b"mine")
    library = ConversationLibrary(tmp_path / "chats")
    for call in (library.list, lambda: list_conversations(tmp_path / "chats"), lambda: library.open(str(uuid.uuid4()))):
        with pytest.raises(StorageError, match=r"Not a directory .ENOTDIR.; move away the file") as caught:
            call()
        assert caught.value.filename == str(tmp_path / "chats")
    for act in (library.open, library.fork, library.delete, lambda chat: library.create(id=chat)):
        with pytest.raises(StorageError):
            act(ID)
    assert (tmp_path / "chats").read_bytes() == b"mine"


LEADS_OUT = ["", ".", "..", "../elsewhere", "a/b", "/etc", "a\0b"]


@for_each("name", [*LEADS_OUT, None, 5, b"x"])
def test_the_name_of_a_folder_does_not_lead_out_of_the_library(name):
    """P16: ``delete_folder("../private/…")`` deleted a conversation of another library."""
    disk = SimulatedFileSystem()
    elsewhere = ConversationLibrary("/elsewhere", file_system=disk)
    make(elsewhere, "a", id=ID)
    library = ConversationLibrary("/chats", file_system=disk, encryption_key=bytes(range(32)))
    make(library, "b", id=ID)
    if name == "../elsewhere":
        name = f"../elsewhere/{ID}"
    before = disk.tree()
    for call in (library.delete_folder, library.shred_folder, lambda name: library.rotate_key([name])):
        with pytest.raises(ValueError if isinstance(name, str) else TypeError):
            call(name)
    assert disk.tree() == before
