"""A second export of the same account: what went on is added, what was edited replaces, an older export changes nothing.

The report: August's export of ChatGPT is still in Downloads when September's is imported; each conversation that went on was
"another session", nothing of September was stored, and the exit code was 1 for good. (ChatGPT writes ``update_time``, Claude.ai
``updated_at``; both exports are complete.)
"""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Callable, Sequence
from itertools import islice, permutations
from pathlib import Path
from typing import Any

import pytest

from tests.importing.helpers import files_of
from transcript_store import ConversationLibrary
from transcript_store.exporting import export
from transcript_store.importing import ImportReport, import_conversations
from transcript_store.redaction import SecretRedactor
from transcript_store.testing import SimulatedBackend

Said = tuple[str, str, int]
"""A message: its id, the id of its parent, and the day on which it was said."""

AUGUST: tuple[Said, ...] = (("u1", "", 1), ("a1", "u1", 2))
SEPTEMBER = (*AUGUST, ("u2", "a1", 3), ("a2", "u2", 4))
EDITED = (*SEPTEMBER, ("u2b", "a1", 5), ("a2b", "u2b", 6))
"""The second question was asked otherwise: the way leads to the new answer."""
OCTOBER = (*EDITED, ("u3", "a2b", 7), ("a3", "u3", 8))


def text_of(name: str) -> str:
    return f"what {name} says, in more than a few words"


def role_of(name: str) -> str:
    return "user" if name[0] == "u" else "assistant"


def chatgpt(said: Sequence[Said], day: int, title: str = "Trip") -> dict[str, Any]:
    names = [name for name, _, _ in said]
    mapping: dict[str, Any] = {"r": {"id": "r", "message": None, "parent": None}}
    for name, parent, at in said:
        message = {
            "id": name,
            "author": {"role": role_of(name)},
            "create_time": 1.75e9 + 86400 * at,
            "content": {"content_type": "text", "parts": [text_of(name)]},
            "recipient": "all",
            "metadata": {},
        }
        mapping[name] = {"id": name, "message": message, "parent": parent or "r"}
    for name, node in mapping.items():
        node["children"] = [other for other, _, _ in said if mapping[other]["parent"] == name]
    times = {"create_time": 1.75e9, "update_time": 1.75e9 + 86400 * day}
    return {"title": title, **times, "mapping": mapping, "current_node": names[-1], "conversation_id": "c"}


def claude_ai(said: Sequence[Said], day: int, title: str = "Trip") -> dict[str, Any]:
    messages = [
        {
            "uuid": name,
            "parent_message_uuid": parent or "00000000-0000-4000-8000-000000000000",
            "sender": {"user": "human"}.get(role_of(name), "assistant"),
            "content": [{"type": "text", "text": text_of(name)}],
            "created_at": f"2026-08-{at:02}T10:00:00.000000Z",
        }
        for name, parent, at in said
    ]
    times = {"created_at": "2026-08-01T10:00:00Z", "updated_at": f"2026-08-{day:02}T10:00:00.000000Z"}
    return {"uuid": "c", "name": title, **times, "chat_messages": messages}


MAKERS: list[Callable[..., dict[str, Any]]] = [chatgpt, claude_ai]


def written(path: Path, *conversations: dict[str, Any]) -> Path:
    """An export: an archive, or the bare document."""
    path.parent.mkdir(exist_ok=True)
    document = json.dumps(list(conversations))
    if path.suffix == ".json":
        path.write_text(document)
    else:
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("conversations.json", document)
    return path


def imported(library: ConversationLibrary, *sources: Path, **options: Any) -> list[ImportReport]:
    return list(import_conversations(sources, library, **options))


def actions(library: ConversationLibrary, *sources: Path, **options: Any) -> list[str]:
    return [report.action for report in imported(library, *sources, **options)]


def said_in(library: ConversationLibrary, generation: int | None = None) -> list[str]:
    (summary,) = library.list()
    assert summary.id is not None
    with library.open(summary.id, read_only=True) as store:
        records = store.iter_records() if generation is None else store.iter_records(generation=generation)
        found = [json.dumps(record.message) for record in records if record.message]
    return [name for message in found for name, _, _ in OCTOBER if text_of(name) in message]


def original_of(library: ConversationLibrary) -> bytes:
    (summary,) = library.list()
    assert summary.id is not None
    stream = io.BytesIO()
    export(library, summary.id, to="original", output=stream)
    return stream.getvalue()


def exports(folder: Path, make: Callable[..., dict[str, Any]], *, says: bool = True, end: str = "zip") -> list[Path]:
    """Four exports of one conversation, a month apart. Without ``says`` all have the same time of the last change."""
    states = (AUGUST, SEPTEMBER, EDITED, OCTOBER)
    return [
        written(folder / f"{number}.{end}", make(state, 9 + number if says else 9))
        for number, state in enumerate(states)
    ]


@pytest.mark.parametrize(
    "name", ["export-{}.zip", "{}/conversations.json", "conversations ({}).json", "{}.json", "my {}x.json"]
)
def test_exports_of_one_folder_follow_each_other_on_a_backend(name: str, tmp_path: Path) -> None:
    """Sources are read there by several threads: the newest one came first, and what was edited in between was stored nowhere."""
    for number, state in enumerate((AUGUST, SEPTEMBER, EDITED, OCTOBER)):
        written(tmp_path / name.format(number), claude_ai(state, 9 + number))
    library = ConversationLibrary(SimulatedBackend())
    assert actions(library, tmp_path) == ["created", "grew", "replaced", "grew"]
    assert said_in(library, generation=0) == ["u1", "a1", "u2", "a2"]


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize("end", ["zip", "json"])
@pytest.mark.parametrize("says", [True, False], ids=["later", "same-time"])
@pytest.mark.parametrize("make", MAKERS)
def test_what_continued_grew_and_what_was_edited_is_replaced(
    make: Callable[..., dict[str, Any]], says: bool, end: str, library: ConversationLibrary, tmp_path: Path
) -> None:
    """One after the other, or all from one folder. The bytes of the newest come out again, each time."""
    found = exports(tmp_path / "exports", make, says=says, end=end)
    for source, action in zip(found, ("created", "grew", "replaced", "grew"), strict=True):
        assert actions(library, source) == [action]
        with zipfile.ZipFile(source) if end == "zip" else source.open("rb") as file:
            expected = file.read("conversations.json") if isinstance(file, zipfile.ZipFile) else file.read()
        assert original_of(library) == expected
    assert said_in(library) == ["u1", "a1", "u2b", "a2b", "u3", "a3"]
    assert said_in(library, generation=0) == ["u1", "a1", "u2", "a2"]
    before = files_of(Path(library.directory))
    assert actions(library, tmp_path / "exports") == ["unchanged"] * 4
    assert files_of(Path(library.directory)) == before
    other = ConversationLibrary(tmp_path / "other")
    assert actions(other, tmp_path / "exports") == ["created", "grew", "replaced", "grew"]
    assert said_in(other) == said_in(library)


@pytest.mark.parametrize("every", [5, pytest.param(1, marks=pytest.mark.long)])
@pytest.mark.parametrize("make", MAKERS)
def test_in_any_order_it_ends_as_the_newest(make: Callable[..., dict[str, Any]], every: int, tmp_path: Path) -> None:
    """And nothing that was said in any of them is lost: it is in the live generation or in an earlier one."""
    found = exports(tmp_path / "exports", make)
    for number, order in enumerate(islice(permutations(found), 0, None, every)):
        library = ConversationLibrary(tmp_path / str(number))
        done = [action for source in order for action in actions(library, source)]
        assert set(done) <= {"created", "grew", "replaced", "unchanged"}
        assert done[order.index(found[-1]) + 1 :] == ["unchanged"] * (3 - order.index(found[-1]))
        assert said_in(library) == ["u1", "a1", "u2b", "a2b", "u3", "a3"]
        assert actions(library, *order) == ["unchanged"] * 4


@pytest.mark.parametrize("make", MAKERS)
def test_f5_what_you_continued_with_here_is_never_overwritten(
    make: Callable[..., dict[str, Any]], library: ConversationLibrary, tmp_path: Path
) -> None:
    """Also after a compaction here. An older export, or the same one again, is no divergence; the fork is kept up."""
    found = exports(tmp_path / "exports", make)
    (report,) = imported(library, found[1])
    assert report.id is not None
    with library.open(report.id) as store:
        store.append_message({"role": "user", "content": "and what I say here"})
    assert actions(library, found[0], found[1]) == ["unchanged"] * 2
    assert actions(library, found[2]) == ["diverged"]
    (fork,) = imported(library, found[2], diverged="fork")
    assert (fork.action, fork.id == report.id) == ("created", False)
    assert actions(library, found[2]) == ["unchanged"]
    assert actions(library, found[3]) == ["grew"]
    with library.open(report.id) as store:
        assert store.get_messages()[-1] == {"role": "user", "content": "and what I say here"}
        store.replace_transcript([{"role": "user", "content": "all of it, in short"}])
    assert actions(library, found[0], found[1]) == ["unchanged"] * 2
    with library.open(report.id, read_only=True) as store:
        assert len(store.get_messages()) == 1


@pytest.mark.parametrize("make", MAKERS)
def test_what_is_not_in_a_later_export_stays(
    make: Callable[..., dict[str, Any]], library: ConversationLibrary, tmp_path: Path
) -> None:
    """A conversation that was deleted on the site; and a message that was."""
    one, two = make(SEPTEMBER, 9), {**make(AUGUST, 9), "conversation_id": "d", "uuid": "d"}
    assert actions(library, written(tmp_path / "a.zip", one, two)) == ["created"] * 2
    assert actions(library, written(tmp_path / "b.zip", make(AUGUST, 10))) == ["replaced"]
    assert len(list(library.list())) == 2
    messages = {json.dumps(record.message) for one in library.list() for record in archived(library, str(one.id))}
    assert any(text_of("a2") in message for message in messages)


def archived(library: ConversationLibrary, id: str) -> list[Any]:
    with library.open(id, read_only=True) as store:
        return [r for n in range(store.get_metadata().generation) for r in store.iter_records(generation=n)]


@pytest.mark.parametrize("make", MAKERS)
def test_a_title_that_changed_alone_and_one_that_you_gave(
    make: Callable[..., dict[str, Any]], library: ConversationLibrary, tmp_path: Path
) -> None:
    """The title is the newest export's, without a new generation; yours stays."""
    imported(library, written(tmp_path / "a.zip", make(AUGUST, 9)))
    (report,) = imported(library, written(tmp_path / "b.zip", make(AUGUST, 10, "Journey")))
    assert (report.action, report.messages) == ("grew", 2)
    assert actions(library, tmp_path / "a.zip", tmp_path / "b.zip") == ["unchanged"] * 2
    with library.open(str(report.id)) as store:
        assert (store.get_metadata().labels["title"], store.get_metadata().generation) == ("Journey", 0)
        store.update_metadata(title="Mine")
    assert actions(library, written(tmp_path / "c.zip", make(SEPTEMBER, 11, "Voyage"))) == ["grew"]
    with library.open(str(report.id), read_only=True) as store:
        assert store.get_metadata().labels["title"] == "Mine"


@pytest.mark.parametrize("make", MAKERS)
def test_the_spelling_of_the_site_changes(
    make: Callable[..., dict[str, Any]], library: ConversationLibrary, tmp_path: Path
) -> None:
    """A member that a later export has of each message is no other message, and not rewritten in turns."""
    first, second = make(SEPTEMBER, 9), make(SEPTEMBER, 9)
    for each in second.get("chat_messages") or second["mapping"].values():
        each["seen"] = True
    a, b = written(tmp_path / "a.zip", first), written(tmp_path / "b.zip", second)
    assert actions(library, a, b, a, b) == ["created", "unchanged", "unchanged", "unchanged"]
    a.unlink()
    assert actions(library, b) == ["grew"]
    assert actions(library, b) == ["unchanged"]
    assert said_in(library) == ["u1", "a1", "u2", "a2"]
    assert original_of(library) == json.dumps([second]).encode()


@pytest.mark.parametrize("make", MAKERS)
def test_two_exports_put_together_in_one_document(
    make: Callable[..., dict[str, Any]], library: ConversationLibrary, tmp_path: Path
) -> None:
    """The newer of the two counts, whichever stands first."""
    both = written(tmp_path / "both.json", make(EDITED, 11), make(AUGUST, 9), make(OCTOBER, 12))
    assert "diverged" not in actions(library, both)
    assert said_in(library) == ["u1", "a1", "u2b", "a2b", "u3", "a3"]
    assert set(actions(library, both)) == {"unchanged"}


@pytest.mark.parametrize("make", MAKERS)
def test_secrets_that_were_taken_out_stay_out(
    make: Callable[..., dict[str, Any]], library: ConversationLibrary, tmp_path: Path
) -> None:
    """An older export without --redact changes nothing; a newer one is refused; with it all generations' lines are clean."""
    redactor = SecretRedactor(patterns=["a2b?"])
    found = exports(tmp_path / "exports", make)
    assert actions(library, found[1], redact=redactor) == ["created"]
    assert actions(library, found[0], found[1]) == ["unchanged"] * 2
    assert actions(library, found[3]) == ["refused"]
    assert actions(library, found[3], redact=redactor) == ["replaced"]
    assert not [path for path in Path(library.directory).rglob("*.jsonl") if b"what a2" in path.read_bytes()]
    plain = ConversationLibrary(tmp_path / "plain")
    assert actions(plain, found[0]) == ["created"]
    assert actions(plain, found[1], redact=SecretRedactor(patterns=["a1"])) == ["replaced"]


def test_two_conversations_of_one_id_and_one_time_do_not_replace_each_other_at_every_import(tmp_path: Path) -> None:
    def chat(*said: str, **about: Any) -> dict[str, Any]:
        at = "2026-09-01T10:00:00Z"
        messages = [{"uuid": one, "sender": "human", "text": one, "created_at": at} for one in said]
        return {"uuid": "c", **about, "updated_at": at, "chat_messages": messages}

    library = ConversationLibrary(tmp_path / "library")
    path = tmp_path / "conversations.json"
    path.write_text(json.dumps([chat("one", "two"), chat("three"), chat("one", "two", account={})]))
    first = [report.action for report in import_conversations([path], library)]
    assert first == ["created", "diverged", "unchanged"]
    for _ in range(2):
        again = [report.action for report in import_conversations([path], library)]
        assert again == ["unchanged", "diverged", "unchanged"]


@pytest.mark.parametrize("make", MAKERS)
def test_of_exports_with_one_time_nothing_that_only_one_says_is_lost(
    make: Callable[..., dict[str, Any]], library: ConversationLibrary, tmp_path: Path
) -> None:
    """A question that was edited in its place: the text of the second and the third was stored nowhere. Each is stored once."""
    for number, word in enumerate(("first", "second", "third")):
        edited = json.loads(json.dumps(make(AUGUST, 9)).replace(text_of("u1"), f"{word}, asked otherwise"))
        written(tmp_path / f"{number}.zip", edited)
    sources = [tmp_path / f"{number}.zip" for number in range(3)]
    assert actions(library, *sources) == ["created", "replaced", "replaced"]
    before = files_of(Path(library.directory))
    for _ in range(2):
        assert actions(library, *sources) == ["unchanged"] * 3
    assert files_of(Path(library.directory)) == before
    (summary,) = library.list()
    stored = [json.dumps(record.message) for record in archived(library, str(summary.id))]
    with library.open(str(summary.id), read_only=True) as store:
        stored.append(json.dumps(store.get_messages()))
    assert all(any(f"{word}, asked" in each for each in stored) for word in ("first", "second", "third"))
