"""What a long conversation takes of memory, and of time: ``python -m benchmarks.memory [--megabytes 99] [--directory DIR]``.

Each act runs in a process of its own. Its memory is the peak of that process (VmHWM) above one that imports the same and opens
nothing; ``getrusage`` would begin with the peak of whoever started it. On Linux only.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from importlib import import_module
from itertools import cycle, islice
from pathlib import Path

from benchmarks import machine
from benchmarks.messages import messages
from benchmarks.timing import duration, size

TOP = Path(__file__).resolve().parent.parent


def make(directory: Path, megabytes: int) -> None:
    """A conversation of the mix, appended message by message, of so many megabytes."""
    from transcript_store import ConversationStore

    pool = cycle(list(islice(messages(images=False), 20_000)))
    with ConversationStore(directory, durability="process-crash") as store:
        store.initialize(provider="claude", model="m", system_prompt="You are an agent.")
        for message in pool:
            stored = store.append_message(message)
            if stored.offset_bytes >= megabytes * 1_000_000:
                break


def prepare_snapshot(directory: Path) -> None:
    """The conversation's snapshot as a file, for the acts that begin with one."""
    from transcript_store import ConversationStore, snapshot_of

    with ConversationStore(directory / "c", read_only=True) as store:
        store.load()
        (directory / "snapshot.json").write_bytes(snapshot_of(store).to_json())


# ---- the acts: each says how long it took ------------------------------------------------------------------------------


def _import(_: Path) -> float:
    import_module("transcript_store.snapshots")
    import_module("cryptography.hazmat.primitives.ciphers.aead")
    import_module("msgspec")
    return 0.0


def _open(directory: Path) -> float:
    from transcript_store import ConversationStore

    begin = time.perf_counter()
    with closing(ConversationStore(directory / "c", read_only=True)) as store:
        store.load()
        return time.perf_counter() - begin


def _snapshot_of(directory: Path) -> float:
    from transcript_store import ConversationStore, snapshot_of

    with ConversationStore(directory / "c") as store:
        store.load()
        begin = time.perf_counter()
        snapshot = snapshot_of(store)
        seconds = time.perf_counter() - begin
        assert snapshot.messages_json
    return seconds


def _hold_snapshot(directory: Path) -> float:
    from transcript_store import Snapshot

    begin = time.perf_counter()
    Snapshot.from_json((directory / "snapshot.json").read_bytes())
    return time.perf_counter() - begin


def _restore_snapshot(directory: Path) -> float:
    from transcript_store import ConversationStore, Snapshot, restore_snapshot

    snapshot = Snapshot.from_json((directory / "snapshot.json").read_bytes())
    _forget_the_peak()
    with tempfile.TemporaryDirectory(dir=directory) as folder, ConversationStore(Path(folder) / "c") as store:
        begin = time.perf_counter()
        restore_snapshot(snapshot, store)
        return time.perf_counter() - begin


def _save(directory: Path) -> float:
    from transcript_store import FileStore, Snapshot

    snapshot = Snapshot.from_json((directory / "snapshot.json").read_bytes())
    _forget_the_peak()
    with tempfile.TemporaryDirectory(dir=directory) as folder:
        begin = time.perf_counter()
        FileStore(folder).save(snapshot)
        return time.perf_counter() - begin


def _load(directory: Path) -> float:
    from transcript_store import FileStore, Snapshot

    with tempfile.TemporaryDirectory(dir=directory) as folder:
        snapshot = Snapshot.from_json((directory / "snapshot.json").read_bytes())
        FileStore(folder).save(snapshot)
        its_id = snapshot.id
        del snapshot
        _forget_the_peak()
        begin = time.perf_counter()
        FileStore(folder).load(its_id)
        return time.perf_counter() - begin


def _peak_bytes() -> int:
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return 1024 * int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM")))


def _forget_the_peak() -> None:
    """Begin to count anew: what was needed to prepare the act is not the act's."""
    Path("/proc/self/clear_refs").write_text("5")


ACTS: dict[str, Callable[[Path], float]] = {
    "import": _import,
    "load()": _open,
    "snapshot_of()": _snapshot_of,
    "Snapshot.from_json()": _hold_snapshot,
    "restore_snapshot()": _restore_snapshot,
    "FileStore.save()": _save,
    "FileStore.load()": _load,
}


def measure(act: str, directory: Path) -> tuple[float, int]:
    """An act in a process of its own: its seconds, and the process's peak in bytes."""
    command = [sys.executable, "-m", "benchmarks.memory", "--act", act, "--directory", str(directory)]
    found = subprocess.run(command, cwd=TOP, check=True, capture_output=True, text=True).stdout
    seconds, peak = json.loads(found)
    return seconds, peak


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.memory", description=__doc__)
    parser.add_argument("--megabytes", type=int, default=99)
    parser.add_argument("--directory", type=Path)
    parser.add_argument("--act", choices=ACTS, help="do only this, in this process, with what is there")
    options = parser.parse_args()
    if options.act:
        seconds = ACTS[options.act](options.directory)
        print(json.dumps([seconds, _peak_bytes()]))
        return
    parent = options.directory or machine.default_directory(Path(tempfile.gettempdir()))
    with tempfile.TemporaryDirectory(prefix=".memory-", dir=parent) as folder:
        directory = Path(folder)
        make(directory / "c", options.megabytes)
        prepare_snapshot(directory)
        file_bytes = (directory / "c" / "transcript.jsonl").stat().st_size
        _, baseline = measure("import", directory)
        print(f"a conversation of {size(file_bytes)}; a process that only imports takes {size(baseline)}")
        for act in ACTS:
            found = [measure(act, directory) for _ in range(3)]
            seconds, above = min(seconds for seconds, _ in found), max(peak for _, peak in found) - baseline
            print(f"{act:<24}{duration(seconds):>10}{size(above):>10}{above / file_bytes:>6.2f} × the file", flush=True)


if __name__ == "__main__":
    main()
