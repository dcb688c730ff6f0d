"""What a user uploaded to ChatGPT, and what it drew, stands in the export beside the conversations, and is shown as what it is.

Reports: Superkikim/nexus-ai-chat-importer#62 (every file is called ``.dat`` since May 2026; a map has the names), atomantic/PortOS#1264
(``file-service://``, ``sediment://`` and attachments that no part points to).
"""

from __future__ import annotations

import base64
import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

from tests.reports.sessions import Imported
from transcript_store import ConversationLibrary
from transcript_store.importing import import_conversations
from transcript_store.messages import typed_of

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
FILES = {
    "a picture": (PNG, "image_url"),
    "a sound": (b"RIFF\x24\0\0\0WAVEfmt ", "input_audio"),
    "a document": (b"%PDF-1.4 zebra", "file"),
    "a text": ("Grévy's zebra quagga\n".encode(), "text"),
}
POINTERS = {
    "sediment": "sediment://file_00000000006820720797ab203bac",
    "service": "file-service://file-0HDUFW2JaMMvCvhqOQsPCGxF",
    "fragment": "sediment://1b2c#file_00000000006820720797ab203bac#p_0.png",
}
STORED = {
    "dat": "{id}.dat",
    "named": "{id}-Screenshot.png",
    "folder": "user-abc/{id}.dat",
}


def the_id(pointer: str) -> str:
    return next(part for part in pointer.replace("#", "/").split("/") if part.startswith("file") and ":" not in part)


def node(name: str, parent: str | None, role: str, parts: list[Any], at: int, **message: Any) -> dict[str, Any]:
    said = {
        "id": name,
        "author": {"role": role, "name": message.pop("tool", None)},
        "create_time": 1.79e9 + at,
        "content": {"content_type": "multimodal_text", "parts": parts},
        "recipient": message.pop("recipient", "all"),
        "metadata": message,
    }
    return {"id": name, "message": said, "parent": parent, "children": []}


def conversation(*nodes: dict[str, Any]) -> bytes:
    mapping = {one["id"]: one for one in nodes}
    return json.dumps(
        [{"conversation_id": "c", "title": "Zebras", "create_time": 1.79e9, "update_time": 1.79e9 + 9,
          "current_node": nodes[-1]["id"], "mapping": mapping}]
    ).encode()  # fmt: skip


def exported(folder: Path, data: bytes, files: dict[str, bytes], *, is_zip: bool, below: str = "") -> Path:
    """An export of these conversations and these files: the ZIP, or the conversations in the folder that it was unpacked to."""
    folder.mkdir(exist_ok=True)
    if not is_zip:
        for name, content in files.items():
            path = folder / below / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        (folder / below / "conversations.json").write_bytes(data)
        return folder / below / "conversations.json"
    path = folder / "export.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(below + name, content)
        archive.writestr(f"{below}conversations.json", data)
    return path


def brought(folder: Path, path: Path) -> Imported:
    library = ConversationLibrary(folder / "library")
    reports = tuple(import_conversations([path], library))
    assert [report.action for report in import_conversations([path], library)] == ["unchanged"]
    return Imported(library, path, reports)


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize("is_zip", [True, False])
@pytest.mark.parametrize(("pointer", "stored"), [*zip(POINTERS, STORED, strict=True), ("service", "dat")])
@pytest.mark.parametrize("kind", FILES)
def test_what_the_user_uploaded_is_a_part_of_his_message(
    tmp_path: Path, kind: str, stored: str, pointer: str, is_zip: bool
) -> None:
    data, part = FILES[kind]
    its_id, path_in_it = the_id(POINTERS[pointer]), STORED[stored].format(id=the_id(POINTERS[pointer]))
    names = {path_in_it: "dalle-generations/Grevy.bin"}
    asset = {"content_type": "image_asset_pointer", "asset_pointer": POINTERS[pointer]}
    said = conversation(node("u", None, "user", [asset, "What is it?"], 0))
    files = {path_in_it: data, "conversation_asset_file_names.json": json.dumps(names).encode(), "chat.html": b"x"}
    got = brought(tmp_path, exported(tmp_path / "export", said, files, is_zip=is_zip, below="x/" if is_zip else ""))
    with got.library.open(str(got.report.id), read_only=True) as store:
        (record,) = [one for one in store.get_records() if one.message is not None]
    assert record.message is not None
    assert [one["type"] for one in record.message["content"]] == ["text", part]
    assert "Grevy.bin" in record.message["content"][0]["text"]
    assert its_id not in record.message["content"][0]["text"]
    assert got.report.losses == ()
    if kind == "a picture" and stored == "dat":
        assert base64.b64encode(PNG).decode() in got.page()
    if kind == "a text" and stored == "dat":
        assert "What is it?" in str(typed_of(record.extra, "x"))
        assert "quagga" not in str(typed_of(record.extra, "x"))
        assert len(got.found("quagga")) == len(got.found("Grevy")) == 1


@pytest.mark.parametrize("author", [{"role": "tool", "tool": "dalle.text2im"}, {"role": "assistant"}])
def test_generated_pictures_follow_their_message(tmp_path: Path, author: dict[str, Any]) -> None:
    """Nobody but a user may send a picture. It is no prompt of his, so it names nothing."""
    asset = {"content_type": "image_asset_pointer", "asset_pointer": POINTERS["sediment"], "metadata": {"dalle": {}}}
    said = conversation(
        node("u", None, "user", ["Draw a zebra"], 0),
        node("a", "u", "assistant", ['{"prompt": "zebra"}'], 1, recipient="dalle.text2im"),
        node("t", "a", author.pop("role"), [asset], 2, **author),
        node("b", "t", "assistant", ["There it is."], 3),
    )
    files = {f"{the_id(POINTERS['sediment'])}.dat": PNG}
    got = brought(tmp_path, exported(tmp_path / "export", said, files, is_zip=True))
    with got.library.open(str(got.report.id), read_only=True) as store:
        records = [one for one in store.get_records() if one.message is not None]
    pictures = [one for one in records if "image_url" in str(one.message)]
    assert [(str(one.message["role"]), typed_of(one.extra, "x")) for one in pictures if one.message] == [("user", "")]
    assert records[-1].message == {"role": "assistant", "content": "There it is."}
    assert base64.b64encode(PNG).decode() in got.page()


def test_an_attachment_that_no_part_points_to(tmp_path: Path) -> None:
    """A document is found by its id; one that is not there keeps its name. The message may name it too."""
    attachments = [
        {"id": "file-AAAAAAAA", "name": "report.pdf"},
        {"id": "file-BBBBBBBB", "name": "notes.md"},
        {"id": "file-CCCCCCCC", "name": "gone.zip"},
    ]
    said = conversation(node("u", None, "user", ["What do report.pdf and the others say?"], 0, attachments=attachments))
    files = {"file-AAAAAAAA.dat": b"%PDF-1.7", "file-BBBBBBBB.dat": b"# quagga", "file-ZZZ.dat": b"?"}
    got = brought(tmp_path, exported(tmp_path / "export", said, files, is_zip=True))
    with got.library.open(str(got.report.id), read_only=True) as store:
        (message,) = store.get_messages()
    text, document, notes = message["content"]
    assert text["text"] == "What do report.pdf and the others say?\n[file: notes.md]"
    assert (document["file"]["filename"], notes["text"]) == ("report.pdf", "[file: notes.md]\n# quagga")
    assert [(loss.kind, loss.count) for loss in got.report.losses] == [("files", 1)]


@pytest.mark.parametrize("data", [b"", b"\0\1\2", b"RIFF____AVI ", PNG[:4]])
def test_unknown_files_keep_their_names(tmp_path: Path, data: bytes) -> None:
    asset = {"content_type": "image_asset_pointer", "asset_pointer": POINTERS["service"]}
    said = conversation(node("u", None, "user", [asset], 0))
    files = {f"{the_id(POINTERS['service'])}.dat": data}
    got = brought(tmp_path, exported(tmp_path / "export", said, files, is_zip=True))
    assert POINTERS["service"] in got.show()
    assert [loss.kind for loss in got.report.losses] == ["media"]


def test_one_that_unpacks_to_too_much_is_not_read(tmp_path: Path) -> None:
    asset = {"content_type": "image_asset_pointer", "asset_pointer": POINTERS["service"]}
    said = conversation(node("u", None, "user", [asset], 0))
    files = {f"{the_id(POINTERS['service'])}.dat": PNG + bytes(17 << 20)}
    got = brought(tmp_path, exported(tmp_path / "export", said, files, is_zip=True))
    assert [loss.kind for loss in got.report.losses] == ["media"]


def test_a_folder_that_is_no_export_is_not_looked_through(tmp_path: Path) -> None:
    """A file of another export in somebody's downloads, or a link to a file of his, is not what the message means."""
    asset = {"content_type": "image_asset_pointer", "asset_pointer": POINTERS["service"]}
    said = conversation(node("u", None, "user", [asset], 0))
    name = f"{the_id(POINTERS['service'])}.dat"
    path = exported(tmp_path / "downloads", said, {name: PNG}, is_zip=False)
    assert [loss.kind for loss in brought(tmp_path, path).report.losses] == ["media"]
    (tmp_path / "secret.png").write_bytes(PNG)
    path = exported(tmp_path / "export", said, {"chat.html": b""}, is_zip=False)
    (path.parent / name).symlink_to(tmp_path / "secret.png")
    assert [loss.kind for loss in brought(tmp_path / "export", path).report.losses] == ["media"]
