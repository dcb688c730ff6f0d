"""Two hundred conversations after a disk fault: a loop in the shell took 29 seconds, and its exit code was that of the last one.

``verify``, ``seal``, ``unseal`` and ``repair --dry-run`` take a library: a line for each that fails, a sum, one exit code.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.cli.conftest import a_cache_of_its_own, cli
from transcript_store import ConversationLibrary, CorruptTranscriptError
from transcript_store.cli._shared.names import backend_at

__all__ = ["a_cache_of_its_own", "cli"]
SAID = [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Hi."}]


@pytest.fixture
def chats(tmp_path):
    """Five conversations, of which two are damaged, each in another way."""
    library = ConversationLibrary(tmp_path / "chats")
    for number in range(5):
        library.create(id=f"0b8f5c1e-4f6d-4f0e-9d5b-2f6f0f3c9a5{number}", messages=SAID).close()
    transcript = tmp_path / "chats" / f"0b8f5c1e-4f6d-4f0e-9d5b-2f6f0f3c9a5{1}" / "transcript.jsonl"
    transcript.write_bytes(transcript.read_bytes().replace(b"Hello", b"Jello"))
    (tmp_path / "chats" / f"0b8f5c1e-4f6d-4f0e-9d5b-2f6f0f3c9a5{3}" / "metadata.json").unlink()
    (tmp_path / "chats" / "notes").mkdir()
    return str(tmp_path / "chats")


def test_verify(chats, cli):
    code, out, err = cli("verify", chats)
    assert (code, out) == (1, f"{chats}: 5 conversations: 3 intact, 2 failed\n")
    one, two = err.splitlines()
    assert f"{chats}/0b8f5c1e-4f6d-4f0e-9d5b-2f6f0f3c9a51/transcript.jsonl, line 2" in one
    assert "9a53/metadata.json" in two
    code, out, _ = cli("verify", chats, "--json")
    told = [json.loads(line) for line in out.splitlines()]
    assert (code, [one["is_intact"] for one in told if "is_intact" in one]) == (1, [True, False, True, False, True])
    assert cli("verify", f"{chats}/0b8f5c1e-4f6d-4f0e-9d5b-2f6f0f3c9a50").out.endswith("intact: no problem found\n")


def test_a_folder_that_is_called_by_another_id(chats, cli):
    """A library does not open it, and `usage` does not count it; `verify` said that it was whole."""
    given, own_id = "0b8f5c1e-4f6d-4f0e-9d5b-2f6f0f3c9a59", "0b8f5c1e-4f6d-4f0e-9d5b-2f6f0f3c9a50"
    shutil.copytree(f"{chats}/{own_id}", f"{chats}/{given}")
    shutil.copytree(f"{chats}/{own_id}", f"{chats}/a name of its own")
    said = f"{chats}/{given}/transcript.jsonl: wrong-conversation: conversation {own_id} is in the folder that belongs to {given}"
    code, out, err = cli("verify", chats)
    assert (code, out, said in err) == (1, f"{chats}: 7 conversations: 4 intact, 3 failed\n", True)
    # No files were mixed: to restore something would lose this copy. Both commands of the hint work.
    assert (
        f"rename the folder to the conversation's own id, or `transcript-store fork {chats}/{given}` copies it under a new one"
        in err
    )
    assert said in cli("repair", chats).err
    # By itself it is whole: a folder outside of a library may have any name, also a UUID of its user's.
    assert cli("verify", f"{chats}/{given}").code == 0
    assert cli("fork", f"{chats}/{given}").code == 0
    assert cli("verify", f"{chats}/a name of its own").code == 0
    (finding,) = ConversationLibrary(chats).verify(given).findings
    with pytest.raises(CorruptTranscriptError) as refused:
        ConversationLibrary(chats).open(given)
    assert (finding.kind, finding.reason, finding.hint) == (
        refused.value.kind,
        refused.value.reason,
        refused.value.hint,
    )


def test_repair_says_what_could_be_kept(chats, cli):
    before = {path: path.read_bytes() for path in Path(chats).rglob("*") if path.is_file() and path.name != "lock"}
    code, out, err = cli("repair", chats, "--dry-run")
    assert (code, out) == (1, f"{chats}: 5 conversations: 3 intact, 2 failed\n")
    assert "accept-edits keeps 2 records" in err
    assert {
        path: path.read_bytes() for path in Path(chats).rglob("*") if path.is_file() and path.name != "lock"
    } == before
    assert cli("repair", chats, "--apply").code == 2
    assert cli("repair", f"{chats}/0b8f5c1e-4f6d-4f0e-9d5b-2f6f0f3c9a51", "--apply", "--dry-run").code == 2


def test_seal_and_unseal(chats, cli, tmp_path):
    """What is sealed already, or open in another program, does not stop the others; the same again finishes."""
    key = str(tmp_path / "keys" / "key")
    assert cli("new-key", key).code == 0
    library = ConversationLibrary(chats)
    with library.open("0b8f5c1e-4f6d-4f0e-9d5b-2f6f0f3c9a50"):
        code, out, err = cli("seal", chats, "--key-file", key)
        assert (code, out) == (1, f"{chats}: 5 conversations: 2 sealed, 3 failed\n")
        assert "this process is writing to it" in err
    assert cli("seal", chats, "--key-file", key).out == f"{chats}: 5 conversations: 3 sealed, 2 failed\n"
    assert sorted(str(summary.id)[-1] for summary in library if summary.sealed) == ["0", "2", "4"]
    assert cli("verify", chats, "--key-file", key).out == f"{chats}: 5 conversations: 3 intact, 2 failed\n"
    code, out, _ = cli("unseal", chats, "--key-file", key)
    assert (code, out) == (1, f"{chats}: 5 conversations: 3 plain, 1 had nothing to do, 1 failed\n")
    assert "4 had nothing to do" in cli("unseal", chats, "--key-file", key).out


def test_on_a_backend(cli):
    """An empty address is a mistake, as it was; one with conversations is all of them."""
    pytest.importorskip("transcript_store.backends", reason="the package without its backends")
    address = "memory:///whole-libraries"
    assert cli("verify", address).code == 2
    library = ConversationLibrary(backend_at(address))
    for _ in range(3):
        library.create(messages=SAID).close()
    assert cli("verify", address) == (0, f"{address}: 3 conversations: 3 intact\n", "")
    assert cli("repair", address, "--dry-run") == (0, f"{address}: 3 conversations: 3 intact\n", "")
