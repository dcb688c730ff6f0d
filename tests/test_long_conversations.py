"""A long conversation in a process of its own, and the most memory that the process ever took.

The incident: a snapshot of a conversation of 99 MB took 991 MB. Its messages were decoded, all at once, and encoded three times;
and each text that orjson returned took ten times its length. A restore held its snapshot, the elements of it, the values in those,
and their texts.

Each process says its peak (VmHWM, which begins with the process; ``getrusage`` begins with its parent's). What a process takes that
imports the same, and does nothing, is subtracted: interpreter and modules, some 35 MB.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from transcript_store import ConversationStore, snapshot_of

pytestmark = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="only Linux says what a process took")

MB = 1_000_000
ID = "0e5a3c52-7f0b-4c39-9b60-0d6f3f2a9b11"
IMPORTS = """
import sys
from pathlib import Path
import cryptography.hazmat.primitives.ciphers.aead, msgspec, transcript_store.snapshots
from transcript_store import ConversationLibrary, ConversationStore, Snapshot, restore_snapshot, snapshot_of, verify

def at(name):
    return str(Path(sys.argv[1]) / name)

def acts():
{acts}
if len(sys.argv) > 1:
    acts()
print(next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")))
"""


def peak_of(acts: str, directory: Path) -> int:
    """The most that a process took that does this, in bytes, above one that does nothing."""
    program = IMPORTS.format(acts="".join(f"    {line}\n" for line in acts.strip().splitlines()))
    peaks = [
        int(subprocess.run([sys.executable, "-c", program, *given], check=True, stdout=subprocess.PIPE).stdout)
        for given in ([str(directory)], [])
    ]
    return (peaks[0] - peaks[1]) * 1024


def conversation(directory: Path, megabytes: int, provider: str = "claude") -> int:
    """Make a conversation of so many megabytes, of messages of all sizes; returns how many bytes it has."""
    said = [{"role": "user", "content": f"<{n}> \u2028 & " + "what was said " * (n * 7919 % 400)} for n in range(2000)]
    with ConversationStore(directory, durability="process-crash") as store:
        store.initialize(id=ID, provider=provider, system_prompt="Be brief.")
        stored = store.append_message(said[0])
        while stored.offset_bytes < megabytes * MB:
            *_, stored = store.append_messages(said[stored.seq % 2000 :][:50])
    return (directory / "transcript.jsonl").stat().st_size


SNAPSHOT_OF = """
with ConversationStore(at("c")) as store:
    store.load()
    assert snapshot_of(store).messages_json
"""
RESTORE = """
snapshot = Snapshot.from_json(Path(at("snapshot.json")).read_bytes())
with ConversationStore(at("copy")) as store:
    restore_snapshot(snapshot, store)
"""


@pytest.mark.long
@pytest.mark.parametrize("provider", ["claude", "openai", "gemini"])
def test_a_snapshot_is_made_and_restored_within_three_times_the_file(tmp_path: Path, provider: str) -> None:
    """The snapshot itself is one of the three; of a restore, so is the file that it was read from."""
    file_bytes = conversation(tmp_path / "c", 25, provider)
    assert peak_of(SNAPSHOT_OF, tmp_path) < 3 * file_bytes
    with ConversationStore(tmp_path / "c", read_only=True) as store:
        store.load()
        (tmp_path / "snapshot.json").write_bytes(snapshot_of(store).to_json())
        messages = store.get_messages()
    assert peak_of(RESTORE, tmp_path) < 3 * file_bytes
    with ConversationStore(tmp_path / "copy", read_only=True) as copy:
        copy.load()
        assert copy.get_messages() == messages


LONG = f"""
long = at("{ID}")
with ConversationStore(long) as store:
    store.load()
    store.append_message({{"role": "user", "content": "one more"}})
    assert len(store.get_messages(last=50)) == 50
assert verify(long).is_intact
library = ConversationLibrary(at("."))
with library.open(library.fork("{ID}"), read_only=True) as fork:
    assert len(fork.get_messages(last=1)) == 1
with ConversationStore(long) as store:
    store.load()
    store.replace_transcript([{{"role": "user", "content": "what came before, in short"}}])
    assert len(store.generations()) == 2
"""


@pytest.mark.long
def test_a_hundred_megabytes_are_worked_with_in_sixty_four(tmp_path: Path) -> None:
    """Opened, appended to, shown, verified, forked and archived, one after the other: 64 MB above an empty process, with the cache's 8."""
    assert conversation(tmp_path / ID, 100) > 100 * MB
    assert peak_of(LONG, tmp_path) < 64 * MB
