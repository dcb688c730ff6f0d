"""`import --redact`: the library contains no secret, and later imports of the session keep it so."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.importing.helpers import Notebook, everything, files_of, imported, line, notebook
from transcript_store import ConversationLibrary, verify
from transcript_store.exporting import ExportError, export
from transcript_store.importing import import_conversations
from transcript_store.redaction import SecretRedactor

pytestmark = pytest.mark.usefixtures("notebooks")

TOKEN = "ghp_" + "Ab3dEf6hIj9kLm2nOp5qRs8tUv1wXy4zAb3d"
OTHER = "ghp_" + "zy4XwV1uTs8RqP5oNm2LkJ9iHg6FeD3bA1Zz"
TEXT = f"Use {TOKEN}, please, and look into the kitchen."
SESSION = (
    notebook()
    + line(say=TEXT, at="2026-01-01T10:00:00Z")
    + line(hook=f"token={TOKEN}", header={"Authorization": "Bearer " + TOKEN})
    + line(title=f"About {TOKEN}")
    + f'{{"torn": "{TOKEN}\n'
    + line(say="ACME-1234", role="assistant")
)
REDACT = SecretRedactor()


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "sessions" / "s.jsonl"
    path.parent.mkdir()
    path.write_text(SESSION)
    return path


def bytes_below(library: ConversationLibrary) -> bytes:
    return b"\n".join(data for _, _, data in files_of(Path(library.directory)).values())


def test_the_secret_is_nowhere_in_the_library(source: Path, library: ConversationLibrary, tmp_path: Path) -> None:
    """Not in the message, not in what is kept of its line, of events, of lines that are no JSON, not in title, note, cache and report."""
    half = '{"say": "' + TOKEN[:20]  # a line that is still being written: half a token has no form
    source.write_bytes(SESSION.encode() + b'{"hook": "\xff' + TOKEN.encode() + b'"}\n' + half.encode())
    os.utime(source, (1e9, 1e9))  # what was written just now is not noted in the cache
    report = imported(source, library, redact=REDACT, cache=tmp_path / "cache")
    assert report.action == "created"
    assert dict(report.redacted) == {"github-token": 6}
    assert report.lines.left_out == 0
    assert report.title == "About [redacted:github-token]"
    for data in (
        bytes_below(library),
        repr(report).encode(),
        *(p.read_bytes() for p in (tmp_path / "cache").iterdir()),
    ):
        assert TOKEN[:20].encode() not in data
    assert report.id is not None
    with library.open(report.id, read_only=True) as store:
        assert store.get_messages()[0]["content"] == "Use [redacted:github-token], please, and look into the kitchen."
        extras = [record.extra or {} for record in store.get_records()]
        counted = [extra["redacted"] for extra in extras if "redacted" in extra]
        assert counted[0] == {"github-token": 1}
        assert len(counted) == 5
    assert verify(f"{library.directory}/{report.id}").is_intact


def test_f2_f3_twice_changes_nothing_and_the_original_is_refused(
    source: Path, library: ConversationLibrary, tmp_path: Path
) -> None:
    """The bytes are not kept, and it says so. Where nothing was found, they are."""
    report = imported(source, library, redact=REDACT)
    assert report.id is not None
    before = files_of(Path(library.directory))
    assert imported(source, library, redact=SecretRedactor()).action == "unchanged"
    assert files_of(Path(library.directory)) == before
    with pytest.raises(ExportError, match="was redacted"):
        export(library, report.id, to="original", output=tmp_path / "again")
    source.with_name("clean.jsonl").write_text(clean := notebook("s2") + line(say="hi"))
    report = imported(source.with_name("clean.jsonl"), library, redact=REDACT)
    assert (dict(report.redacted), report.id is None) == ({}, False)
    export(library, report.id, to="original", output=tmp_path / "again")
    assert (tmp_path / "again").read_text() == clean


def test_it_is_kept_up_with(source: Path, library: ConversationLibrary) -> None:
    """What grew is appended, what was rewritten is a generation, what you added stays: as without redaction."""
    for n, (change, action) in enumerate(
        [
            (lambda text: text + line(say=f"And {OTHER}."), "grew"),
            (lambda text: text + line(compact=f"We had {TOKEN}."), "grew"),
            (lambda text: text.replace("kitchen", "cellar"), "replaced"),
        ]
    ):
        source.write_text(change(source.read_text()) if n else SESSION)
        if not n:
            assert imported(source, library, redact=REDACT).action == "created"
            source.write_text(change(SESSION))
        report = imported(source, library, redact=REDACT)
        assert report.action == action
        assert imported(source, library, redact=REDACT).action == "unchanged"
    assert report.id is not None
    assert TOKEN.encode() not in bytes_below(library)
    assert OTHER.encode() not in bytes_below(library)
    with library.open(report.id) as store:
        store.append_message({"role": "user", "content": "mine"})
    source.write_text(source.read_text() + line(say="more"))
    assert imported(source, library, redact=REDACT).action == "diverged"
    assert imported(source, library, redact=REDACT, diverged="fork").action == "created"


def test_an_import_without_it_does_not_bring_the_secrets_in(source: Path, library: ConversationLibrary) -> None:
    """An import of everything, later: what did not change is unchanged; the rest is refused, and says how to go on."""
    report = imported(source, library, redact=SecretRedactor(patterns=[r"ACME-\d+"]))
    assert imported(source, library).action == "unchanged"
    source.write_text(SESSION + line(say="more"))
    before = everything(library)
    for less in (None, SecretRedactor(), SecretRedactor(patterns=[r"ACME-\d"])):
        refused = imported(source, library, redact=less, diverged="fork")
        assert (refused.action, "--redact" in str(refused.reason)) == ("refused", True)
        # Not "it has changed": of a database, or after a killed import, that is unknown, and often wrong.
        assert "this import would store them" in str(refused.reason)
        assert "changed" not in str(refused.reason)
    assert everything(library) == before
    assert TOKEN.encode() not in bytes_below(library)
    more = SecretRedactor(patterns=["kitchen", r"ACME-\d+"])
    assert imported(source, library, redact=more).action == "replaced"
    assert imported(source, library, redact=more).action == "unchanged"
    assert report.id is not None
    with library.open(report.id, read_only=True) as store:
        assert "[redacted:pattern]" in store.get_messages()[0]["content"]


def test_what_was_imported_without_it_is_replaced(source: Path, library: ConversationLibrary, tmp_path: Path) -> None:
    """And it is said that the generation before still has the secrets; also if only the stamps would say that nothing changed."""
    cache = tmp_path / "cache"
    os.utime(source, (1e9, 1e9))
    assert imported(source, library, cache=cache).action == "created"
    report = imported(source, library, redact=REDACT, cache=cache)
    assert report.action == "replaced"
    assert "secrets --forget" in str(report.reason)
    assert imported(source, library, redact=REDACT, cache=cache).action == "unchanged"
    assert report.id is not None
    with library.open(report.id) as store:
        assert TOKEN not in json.dumps(store.get_messages())
        store.delete_generation(0)
    assert TOKEN.encode() not in bytes_below(library)
    assert imported(source, library, redact=REDACT, cache=cache).action == "unchanged"


def test_a_file_without_secrets_is_not_replaced_for_it(tmp_path: Path, library: ConversationLibrary) -> None:
    path = tmp_path / "s.jsonl"
    path.write_text(notebook() + line(say="hi"))
    assert imported(path, library).action == "created"
    before = files_of(Path(library.directory))
    assert imported(path, library, redact=REDACT).action == "unchanged"
    assert files_of(Path(library.directory)) == before
    path.write_text(path.read_text() + line(say=f"It is {TOKEN}."))
    assert imported(path, library, redact=REDACT).action == "grew"
    assert TOKEN.encode() not in bytes_below(library)


def test_an_error_of_a_reader_does_not_tell_it(
    source: Path, library: ConversationLibrary, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a reader raises may repeat the line that it failed on."""

    def failing(self: Notebook, source: object) -> list[object]:
        raise ValueError(f"cannot read {TEXT}")

    monkeypatch.setattr(Notebook, "plans", failing)
    (report,) = import_conversations([source], library, redact=REDACT)
    assert report.action == "refused"
    assert TOKEN not in str(report.reason)


def test_an_export_without_the_secrets(source: Path, library: ConversationLibrary, tmp_path: Path) -> None:
    """Of a conversation that has them, in every form; the conversation stays as it is. Every byte is not to be had so."""
    report = imported(source, library)
    assert report.id is not None
    before = files_of(Path(library.directory))
    for to in ("jsonl", "markdown", "html", "claude-code", "codex", "pi", "gemini-cli"):
        done = export(library, report.id, to=to, output=tmp_path / to, redact=REDACT, cwd=tmp_path)
        assert all(TOKEN not in Path(path).read_text() for path in done.paths)
        assert done.redacted["github-token"] >= 1
    with pytest.raises(ValueError, match="cannot be redacted"):
        export(library, report.id, to="original", output=tmp_path / "o", redact=REDACT)
    assert files_of(Path(library.directory)) == before
