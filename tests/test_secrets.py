"""``transcript_store.secrets``: where secrets stand, never which; and a library without them, whatever had them and whatever comes next."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.importing.helpers import imported, line, notebook, use_notebooks
from tests.kit.trees import bytes_below
from transcript_store import (
    ConversationLibrary,
    ConversationStore,
    FileStore,
    StorageError,
    restore_snapshot,
    snapshot_of,
    verify,
)
from transcript_store.importing import import_conversations
from transcript_store.redaction import SecretRedactor
from transcript_store.secrets import find_secrets, find_secrets_in_snapshots, forget_secrets

TOKEN = "ghp_" + "Ab3dEf6hIj9kLm2nOp5qRs8tUv1wXy4zAb3d"
CLEAN = [{"role": "user", "content": "Where does the zebra sleep?"}]
SAID = [{"role": "user", "content": f"Use {TOKEN}."}]


def parts(found: Any) -> list[tuple[str, str, int | None, dict[str, int]]]:
    found = list(found)
    assert TOKEN[4:] not in repr(found)
    return sorted((Path(one.directory).name, one.part, one.generation, dict(one.counts)) for one in found)


def made(folder: Path) -> None:
    """A library with secrets in each place that can have one, and a conversation without any."""
    with ConversationStore(folder / "clean") as store:
        store.initialize(messages=CLEAN)
    with ConversationStore(folder / "live") as store:
        store.initialize(messages=[*SAID, *CLEAN], labels={"title": f"About {TOKEN}"}, features=["retract"])
        store.retract(1)
        store.append_event({"env": {"TOKEN": TOKEN}, "redacted": {"jwt": 1}})
    with ConversationStore(folder / "earlier") as store:
        store.initialize(messages=SAID)
        store.replace_transcript(CLEAN)
        store.replace_transcript([*CLEAN, *CLEAN])
    with ConversationStore(folder / "prompt") as store:
        store.initialize(system_prompt=f"The key is {TOKEN}.", tools=[{"name": "t", "description": TOKEN}])
        store.append_message(*CLEAN)
    with ConversationStore(folder / "forgotten prompt") as store:
        store.initialize(system_prompt=f"The key is {TOKEN}.")
        store.update_metadata(system_prompt="")
    with ConversationStore(folder / "earlier prompt") as store:
        store.initialize(system_prompt=f"The key is {TOKEN}.", messages=CLEAN)
        store.update_metadata(system_prompt="")
        store.replace_transcript(CLEAN)
    with ConversationStore(folder / "torn") as store:
        store.initialize(messages=CLEAN)
    with open(folder / "torn" / "transcript.jsonl", "ab") as file:
        file.write(f'{{"seq":2,"at":"2026-01-01T00:00:00.000000Z","message":"{TOKEN}'.encode())
    with ConversationStore(folder / "torn") as store:
        store.load()
    prompt = [{"role": "system", "content": f"The key is {TOKEN}."}, *CLEAN]
    with ConversationStore(folder / "restored") as store:
        store.initialize(provider="openai", messages=prompt)
        restore_snapshot(snapshot_of(store), store)  # the metadata has the system message, too: `restored_from`


FOUND = [
    ("earlier", "generation", 0, {"github-token": 1}),
    ("earlier prompt", "generation", 0, {"github-token": 1}),
    ("forgotten prompt", "live", 0, {"github-token": 1}),
    ("live", "live", 0, {"github-token": 3}),
    ("prompt", "live", 0, {"github-token": 2}),
    ("restored", "generation", 0, {"github-token": 1}),
    ("restored", "live", 1, {"github-token": 2}),
    ("torn", "quarantine", None, {"github-token": 1}),
]


def test_a_quarantine_that_cannot_be_read_is_not_one_without_secrets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The conversation opens, and its quarantine is closed to this user: nothing was said, and `secrets` ended with 0."""
    library = ConversationLibrary(tmp_path / "library")
    library.create(messages=[{"role": "user", "content": "Hello"}]).close()
    (one,) = library.list()

    def refuse(path: str) -> None:
        raise StorageError(
            errno=errno.EACCES, strerror="Permission denied", path=path, doing="look at the conversation"
        )

    monkeypatch.setattr("transcript_store.secrets.verify", refuse)
    for report in (*find_secrets(library), *forget_secrets(library)):
        assert (report.part, report.directory) == ("quarantine", one.directory)
        assert "Permission denied" in (report.reason or "")
    assert len([*find_secrets(library)]) == len([*forget_secrets(library)]) == 1


def test_each_part_with_secrets_is_found_and_forgotten_and_nothing_else_changes(tmp_path: Path) -> None:
    made(tmp_path)
    before = bytes_below(tmp_path / "clean")
    assert parts(find_secrets(tmp_path)) == FOUND
    assert parts(forget_secrets(tmp_path)) == FOUND
    assert TOKEN.encode() not in bytes_below(tmp_path)
    assert parts(find_secrets(tmp_path)) == []
    assert parts(forget_secrets(tmp_path)) == []
    assert bytes_below(tmp_path / "clean") == before
    for folder in tmp_path.iterdir():
        assert verify(folder).is_intact
    with ConversationStore(tmp_path / "live", read_only=True) as store:
        store.load()
        first, second, third, fourth = store.get_records()
        assert store.get_messages() == [{"role": "user", "content": "Use [redacted:github-token]."}]
        assert first.extra == {"redacted": {"github-token": 1}}
        assert (second.is_retracted, third.retracts) == (True, (2, 2))
        assert fourth.extra == {"env": {"TOKEN": "[redacted:github-token]"}, "redacted": {"github-token": 1, "jwt": 1}}
        assert store.get_metadata().labels == {"title": "About [redacted:github-token]"}
    with ConversationStore(tmp_path / "earlier", read_only=True) as store:
        store.load()
        assert [one.number for one in store.generations()] == [1, 2]


def test_what_a_redacting_store_removes_from_events_is_found_and_forgotten_in_others(tmp_path: Path) -> None:
    """Also names of members, values that their name reveals, and members that look like those of an import."""
    password = "Tr0ub4dor&3xyz"
    events: list[dict[str, Any]] = [
        {"event": "login", "password": password},
        {TOKEN: 1, "note": TOKEN},
        {"name": "Authorization", "value": "Bearer abcDEF123456ghiJKL"},
        {"source": TOKEN},
        {"source": {"lines": TOKEN, "line": TOKEN}},
        {"source": {"lines": [TOKEN, {"n": 1, "line": TOKEN, "url": TOKEN}]}},
        {"source": {"lines": [], TOKEN: 1}},
        {"source": {"lines": [], "password": password}},
        {"source": {"lines": [{"line": {}, "password": password}, {TOKEN: 1}, {"n": TOKEN}, {"end": TOKEN}]}},
    ]
    extras = []
    for name, redact in (("before", SecretRedactor()), ("after", None)):
        library = ConversationLibrary(tmp_path / name, redact=redact)
        with library.create(messages=[None] * len(events), extras=events) as store:
            own_id = store.id
        assert all(forgotten.reason is None for forgotten in forget_secrets(library))
        with library.open(own_id, read_only=True) as store:
            extras.append([record.extra for record in store.get_records()])
        left = bytes_below(tmp_path / name)
        assert not any(secret.encode() in left for secret in (TOKEN, password, "abcDEF123456ghiJKL"))
    assert extras[0] == extras[1]
    assert list(find_secrets(tmp_path / "after")) == []


def test_a_pattern_may_match_the_name_of_a_field(tmp_path: Path) -> None:
    """The names of the metadata's fields are ours."""
    redact = SecretRedactor(patterns=["model|labels|tools|system_prompt"])
    library = ConversationLibrary(tmp_path / "library")
    with library.create(
        model="the model", system_prompt="of models", labels={"title": "labels"}, messages=CLEAN
    ) as store:
        own_id = store.id
    assert [one.reason for one in forget_secrets(library, redact=redact)] == [None]
    assert list(find_secrets(library, redact=redact)) == []
    with library.open(own_id, read_only=True) as store:
        metadata = store.get_metadata()
    assert (metadata.model, metadata.system_prompt) == ("the [redacted:pattern]", "of [redacted:pattern]s")
    assert metadata.labels == {"title": "[redacted:pattern]"}


def test_what_cannot_be_done_is_named_and_the_rest_is_done(tmp_path: Path) -> None:
    """One that is being written to, one that is damaged: with their reasons. When the writer is gone the same call does it."""
    made(tmp_path)
    (tmp_path / "prompt" / "transcript.jsonl").write_text("damaged\n")
    with ConversationStore(tmp_path / "live") as writer:
        writer.load()
        done = list(forget_secrets(tmp_path))
    left = {Path(one.directory).name: str(one.reason) for one in done if one.reason is not None}
    assert left.keys() == {"live", "prompt"}
    assert "lock" in left["live"]
    assert parts(find_secrets(tmp_path))[0] == FOUND[3]
    assert [Path(one.directory).name for one in forget_secrets(tmp_path) if one.reason is None] == ["live"]


def test_a_library_with_its_keys_opens_what_it_sealed(tmp_path: Path) -> None:
    """In a directory as on a backend; a key of the call comes before that of the library."""
    library = ConversationLibrary(tmp_path, encryption_key=bytes(range(32)))
    with library.create(messages=[{"role": "user", "content": f"Use {TOKEN}."}]) as store:
        own_id = str(store.id)
    for found in (find_secrets(library), find_secrets(tmp_path, encryption_key=bytes(range(32)))):
        assert [(one.part, one.reason) for one in found] == [("live", None)]
    assert [one.reason for one in forget_secrets(library)] == [None]
    with library.open(own_id, read_only=True) as store:
        assert store.get_messages() == [{"role": "user", "content": "Use [redacted:github-token]."}]
    assert list(find_secrets(library)) == []


def test_a_fork_of_what_was_imported_is_found_and_the_import_continues(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Forgotten in both; then the source is compared as if it had been imported without its secrets, which never come back."""
    use_notebooks(monkeypatch)
    source = tmp_path / "s.jsonl"
    text = notebook() + line(say=f"Use {TOKEN}") + line(compact=f"We use {TOKEN}") + line(title=f"{TOKEN}", hook=TOKEN)
    source.write_text(text + f'{{"half": "{TOKEN[:20]}')
    library = ConversationLibrary(tmp_path / "library")
    report = imported(source, library)
    assert report.id is not None
    fork = library.fork(report.id)
    with library.open(fork) as store:
        store.append_message(*SAID)
    assert {one.id for one in forget_secrets(library)} == {report.id, fork}
    assert TOKEN[:20].encode() not in bytes_below(Path(library.directory))
    assert imported(source, library).action == "unchanged"
    assert imported(source, library, redact=SecretRedactor()).action == "unchanged"
    source.write_text(text + line(say=f"Again {TOKEN}"))
    assert imported(source, library).action == "refused"
    assert imported(source, library, redact=SecretRedactor()).action == "grew"
    source.write_text(text.replace("Use", "Take") + line(compact="Anew"))
    assert imported(source, library).action == "refused"
    assert imported(source, library, redact=SecretRedactor()).action == "replaced"
    assert TOKEN.encode() not in bytes_below(Path(library.directory))


def test_only_earlier_generations_of_an_import_had_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Then the next import needs a redactor as well: the source still has them."""
    use_notebooks(monkeypatch)
    source = tmp_path / "s.jsonl"
    source.write_text(text := notebook() + line(say=f"Use {TOKEN}") + line(compact="We use a token"))
    library = ConversationLibrary(tmp_path / "library")
    report = imported(source, library)
    assert [(one.part, one.generation) for one in forget_secrets(library)] == [("generation", 0)]
    source.write_text(text.replace("Use", "Take"))
    assert imported(source, library).action == "refused"
    assert report.id is not None
    with library.open(report.id, read_only=True) as store:
        assert [one.number for one in store.generations()] == [2]


def test_a_redaction_by_a_pattern_that_is_not_given_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it took out cannot be looked for; the generation from before goes."""
    use_notebooks(monkeypatch)
    source = tmp_path / "s.jsonl"
    source.write_text(notebook() + line(say="Use ACME-1234"))
    library = ConversationLibrary(tmp_path / "library")
    imported(source, library)
    imported(source, library, redact=SecretRedactor(patterns=[r"ACME-\d+"]))
    (found,) = find_secrets(library)
    assert (found.part, found.generation, dict(found.counts), found.is_unknown) == ("generation", 0, {}, True)
    list(forget_secrets(library))
    assert b"ACME-1234" not in bytes_below(Path(library.directory))
    assert list(find_secrets(library)) == []


def test_snapshots_are_found(tmp_path: Path) -> None:
    made(tmp_path / "library")
    store = FileStore(tmp_path / "snapshots")
    for name in ("clean", "live"):
        with ConversationStore(tmp_path / "library" / name, read_only=True) as conversation:
            conversation.load()
            store.save(snapshot_of(conversation))
    (found,) = find_secrets_in_snapshots(store)
    assert (found.part, dict(found.counts)) == ("snapshot", {"github-token": 2})
    assert TOKEN not in repr(found)
    store.delete(str(found.id))
    assert list(find_secrets_in_snapshots(store)) == []


def test_a_redactor_that_does_not_count_is_refused(tmp_path: Path) -> None:
    for call in (find_secrets, forget_secrets):
        with pytest.raises(TypeError, match="SecretRedactor"):
            call(tmp_path, redact=json.dumps)  # type: ignore[arg-type]
    assert list(find_secrets(tmp_path / "nowhere")) == []
    assert list(import_conversations([], ConversationLibrary(tmp_path))) == []


@pytest.mark.parametrize("messages", [CLEAN, SAID])
def test_a_torn_tail_is_searched_and_forgotten_before_a_load_has_cut_it(
    tmp_path: Path, messages: list[dict[str, Any]]
) -> None:
    """The incident: the load of ``forget_secrets`` itself put the torn tail with the secret into the quarantine, after that was searched."""
    with ConversationStore(tmp_path / "c") as store:
        store.initialize(messages=messages)
    tail = f'{{"seq":2,"at":"2026-01-01T00:00:00.000000Z","message":"{TOKEN} and'
    for end in ("", "\n"):
        with open(tmp_path / "c" / "transcript.jsonl", "ab") as file:
            file.write((tail + end).encode())
        assert ("c", "quarantine", None, {"github-token": 1}) in parts(find_secrets(tmp_path))
        assert all(one.reason is None for one in forget_secrets(tmp_path))
        assert parts(find_secrets(tmp_path)) == []
        assert TOKEN.encode() not in bytes_below(tmp_path)


def test_a_whole_record_without_its_line_feed_is_searched_and_forgotten(tmp_path: Path) -> None:
    """A reader skips it, and the next writer keeps it: it is redacted."""
    with ConversationStore(tmp_path / "c", durability="process-crash") as store:
        store.initialize(messages=CLEAN)
        mark = (tmp_path / "c" / "metadata.json").read_bytes()
        store.append_messages(SAID)
    (tmp_path / "c" / "metadata.json").write_bytes(mark)
    with open(tmp_path / "c" / "transcript.jsonl", "ab") as file:
        file.truncate(file.tell() - 1)
    assert parts(find_secrets(tmp_path)) == [("c", "quarantine", None, {"github-token": 1})]
    assert all(one.reason is None for one in forget_secrets(tmp_path))
    assert parts(find_secrets(tmp_path)) == []
    assert TOKEN.encode() not in bytes_below(tmp_path)
    with ConversationStore(tmp_path / "c", read_only=True) as store:
        store.load()
        assert [message["content"] for message in store.get_messages()] == [
            CLEAN[0]["content"],
            "Use [redacted:github-token].",
        ]


def test_what_killed_calls_left_is_removed(tmp_path: Path) -> None:
    """A delete that was killed after its rename, and a replace before it; in a conversation that has no secret itself."""
    for name in ("clean", "gone"):
        with ConversationStore(tmp_path / name) as store:
            store.initialize(messages=CLEAN)
    leftover = tmp_path / "clean" / f".tmp-{0:032x}"
    leftover.write_text(TOKEN)
    (tmp_path / "gone" / "transcript.jsonl").write_text(TOKEN)
    (tmp_path / "gone").rename(tmp_path / f".trash-{0:032x}")
    assert list(forget_secrets(tmp_path)) == []
    assert TOKEN.encode() not in bytes_below(tmp_path)
    with ConversationStore(tmp_path / "clean", read_only=True) as store:
        store.load()
        assert store.get_messages() == CLEAN


def test_a_leftover_of_an_active_writer_is_its_own(tmp_path: Path) -> None:
    with ConversationStore(tmp_path / "clean") as store:
        store.initialize(messages=CLEAN)
        own = tmp_path / "clean" / f".tmp-{0:032x}"
        own.write_text("it may be writing this")
        assert list(forget_secrets(tmp_path)) == []
        assert own.exists()


@pytest.mark.parametrize("make", [os.mkfifo, lambda path: path.symlink_to("/dev/zero"), Path.mkdir])
def test_only_files_of_a_quarantine_are_opened(tmp_path: Path, make: Callable[[Path], None]) -> None:
    """A FIFO would be waited for without an end, and a link may lead anywhere."""
    with ConversationStore(tmp_path / "chat") as store:
        store.initialize(messages=CLEAN)
    name = "g000000-o000000000000-0123456789abcdef"
    (tmp_path / "chat" / "quarantine").mkdir()
    make(tmp_path / "chat" / "quarantine" / name)
    for found in (find_secrets(tmp_path), forget_secrets(tmp_path)):
        assert [(one.part, one.reason) for one in found] == [("quarantine", f"cannot be read: {name} is not a file")]
