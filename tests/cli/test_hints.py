"""An error's hint is a value: the command prints its own form of it, and the rest of the sentence unchanged.

Found from outside: the command line looked for words of Python in finished sentences and put others in their place, also
within the user's paths. A damaged conversation in `lab/read_only=True` was reported as one in `lab/transcript-store show`,
so that nobody found the file. Three of three paths that were tried came out wrong.
"""

from __future__ import annotations

import importlib.util
import re
import shlex
from itertools import product
from pathlib import Path

import pytest

import transcript_store
from tests.cli.helpers import Cli, conversation, damage
from tests.kit.cases import for_each
from transcript_store import (
    ConversationStore,
    CorruptTranscriptError,
    Finding,
    Hint,
    InvalidSnapshotIdError,
    MissingExtraError,
    MissingTokenError,
    SnapshotNotFoundError,
    StorageError,
    verify,
)
from transcript_store._log.damage import Kind
from transcript_store.cli._shared.hints import error_sentence, in_the_shell
from transcript_store.installation import install_command

PATHS = ["read_only=True", "repair()", "through_seq", "call load() again", "{error}{directory}", "verify() says"]
PYTHON = re.compile(r"\(\)|[a-z_]+=|ChatConfig|_[a-z]+_")


def test_a_snapshot_that_is_missing_is_not_looked_for_among_conversations() -> None:
    """It said "list() shows the conversations"."""
    missing = SnapshotNotFoundError(id="0b8f", path="/kept")
    assert str(missing) == "/kept: there is no snapshot 0b8f; list() shows the snapshots"
    assert str(InvalidSnapshotIdError(id="x", reason="x is not an id")).endswith("; list() shows the snapshots")
    assert error_sentence(missing, "snapshot").endswith("; `transcript-store snapshot list` lists the stored ones")


@pytest.mark.sampled(every=5)
@pytest.mark.parametrize("name", PATHS)
@pytest.mark.parametrize("command", [("show",), ("head",), ("record",), ("verify",), ("repair",), ("list",)])
def test_a_path_is_printed_as_it_is(cli: Cli, tmp_path: Path, name: str, command: tuple[str, ...]) -> None:
    """Whatever a folder is called, what is said of it names that folder, and a printed command can be run on it."""
    directory = conversation(tmp_path / name, [{"content": "first"}, {"content": "second"}])
    damage(tmp_path / name, b"first", b"FIRST")
    if command == ("list",):
        (tmp_path / name / "metadata.json").unlink()
    _, out, err = cli(*command, str(tmp_path) if command == ("list",) else directory)
    assert name in out + err
    for printed in re.findall(r"`transcript-store (?:repair|verify|show) (.*?)`", out + err):
        assert shlex.split(printed)[0] == directory


def test_every_hint_has_words_of_the_shell() -> None:
    """No way out is told in Python to somebody at a shell, whichever command met it."""
    error = MissingExtraError(provider="claude", extra="claude", program="claude")
    for hint, command in product(Hint, ("", "record", "chat", "snapshot")):
        said = in_the_shell(hint, "/c/transcript.jsonl", command=command, error=error)
        said = said.replace(str(error.install), "pip install")  # it names the folder that this package is in
        assert not PYTHON.search(said), hint
        assert len(said) > 9, hint


OF_A_ROOM = {
    "chat": {Hint.ALLOW_INSECURE},
    "backends": {
        Hint.TAKE_OVER,
        Hint.FORK_AND_DELETE,
        Hint.SEAL_A_COPY,
        Hint.FORK_WHAT_IS_LEFT,
        Hint.SAVE_AND_FORK,
        Hint.COLLECT_A_COPY,
        Hint.SHIP_ELSEWHERE,
        Hint.CHOOSE_A_FIT_SERVER,
    },
}
GONE = set().union(
    *(of for room, of in OF_A_ROOM.items() if importlib.util.find_spec(f"transcript_store.{room}") is None)
)


def test_every_hint_is_one_of_an_error() -> None:
    """None is left over: each is named where an error is raised, or follows from what it is."""
    package = Path(transcript_store.__file__).parent
    raised = "".join(path.read_text() for path in package.rglob("*.py") if "cli" not in path.parts)
    named = set(re.findall(r"\bHint\.(\w+)", raised))
    assert {hint.name for hint in Hint if hint not in GONE} - named == set()


def test_the_two_halves_of_an_error(tmp_path: Path) -> None:
    """An error has what happened and the way out apart, for a program that has words of its own; its text has both."""
    conversation(tmp_path / "c", [{"content": "first"}])
    damage(tmp_path / "c", b"first", b"FIRST")
    with ConversationStore(tmp_path / "c") as store, pytest.raises(CorruptTranscriptError) as caught:
        store.load()
    error = caught.value
    assert error.hint is Hint.RESTORE_OR_REPAIR
    assert str(error) == f"{error.problem}; {error.hint.value}"
    assert str(tmp_path) in error.problem
    assert error_sentence(error) == (
        f"{error.problem}; restore it from a backup, or see what `transcript-store repair {tmp_path}/c` can keep"
    )


@for_each("name", ["", "/transcript.jsonl", "/metadata.json", "/lock", "/archive/transcript-000000.jsonl"])
def test_a_command_is_told_the_conversation_whichever_of_its_files_was_refused(name: str) -> None:
    """On a read-only file system it is the lock: `show …/lock` would show nothing."""
    said = in_the_shell(Hint.OPEN_TO_READ, f"/c{name}")
    assert said == "`transcript-store show /c` still prints every whole record"


def test_what_holds_after_a_refusal_is_apart_from_the_hint() -> None:
    """An error of the disk says with its facts what was refused, and what holds all the same."""
    error = StorageError(
        errno=28,
        strerror="No space left on device",
        path="/c",
        doing="append",
        consequence="Nothing of it was stored",
        hint=Hint.FREE_SPACE,
    )
    assert (error.errno, error.strerror, error.filename) == (28, "No space left on device", "/c")
    assert str(error) == (
        "/c: cannot append: No space left on device [ENOSPC]. Nothing of it was stored; free some space and try again"
    )


def test_every_finding_has_a_hint() -> None:
    """Whatever verify may find, there is something to do about it."""
    kinds = [*Kind.__args__, "damaged", "version", "of a later day"]  # type: ignore[attr-defined]
    for kind, name in product(kinds, ["transcript.jsonl", "metadata.json", "archive/transcript-000000.jsonl", ""]):
        finding = Finding(path=f"/c/{name}".rstrip("/"), kind=kind, reason="")
        assert isinstance(finding.hint, Hint), (kind, name)
        assert in_the_shell(finding.hint, "/c"), (kind, name)


def test_a_torn_tail_of_the_live_transcript_only_mends_itself(tmp_path: Path) -> None:
    """The end of the live transcript is cut by the next load; an archived generation that lost its end is damaged."""
    conversation(tmp_path / "c")
    with ConversationStore(tmp_path / "c") as store:
        store.load()
        store.replace_transcript([{"n": 1}])
    for name, hint in (
        ("transcript.jsonl", Hint.LOAD_CUTS_IT),
        ("archive/transcript-000000.jsonl", Hint.RESTORE_OR_REPAIR),
    ):
        with (tmp_path / "c" / name).open("ab") as transcript:
            transcript.write(b"{")
        found = {finding.path: finding.hint for finding in verify(tmp_path / "c").findings}
        assert found[str(tmp_path / "c" / name)] is hint


def test_no_hint_recommends_a_provider_that_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """`chat` without the extra ``local`` recommended --provider local in the sentence that said it is missing."""
    missing = error_sentence(MissingExtraError(provider="local", extra="local"), "chat")
    assert "--provider local" not in missing
    assert "ANTHROPIC_API_KEY" in missing
    no_key = MissingTokenError(provider="claude", variables=("ANTHROPIC_API_KEY",))
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: object())
    assert "or without a key: --provider local continues" in error_sentence(no_key, "chat")
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    assert f"or without a key: {install_command('local')}; then --provider local" in error_sentence(no_key, "chat")
