"""What a long conversation takes of memory, and of time: ``python -m benchmarks.memory [--megabytes 99] [--within 128]``.

Each act runs in a process of its own. Its memory is the peak of that process (VmHWM) above one that imports the same and opens
nothing; ``getrusage`` would begin with the peak of whoever started it. ``--within`` instead lets one process do everything that
a conversation of any length is for, in a control group with so many megabytes: interpreter, modules and the system's cache of its
files are in that. On Linux only, and for a control group only as root.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from importlib import import_module
from itertools import cycle, islice
from pathlib import Path
from typing import NamedTuple

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


class Taken(NamedTuple):
    """How long an act took: by the clock, and of the processor's time, which says more on a machine that others use too."""

    seconds: float
    processor_seconds: float


def _now() -> Taken:
    return Taken(time.perf_counter(), time.process_time())


def _since(begin: Taken) -> Taken:
    return Taken(time.perf_counter() - begin.seconds, time.process_time() - begin.processor_seconds)


# ---- the acts: each says how long it took ------------------------------------------------------------------------------


def _import(_: Path) -> Taken:
    import_module("transcript_store.snapshots")
    import_module("cryptography.hazmat.primitives.ciphers.aead")
    import_module("msgspec")
    return Taken(0.0, 0.0)


def _open(directory: Path) -> Taken:
    from transcript_store import ConversationStore

    begin = _now()
    with closing(ConversationStore(directory / "c", read_only=True)) as store:
        store.load()
        return _since(begin)


def _snapshot_of(directory: Path) -> Taken:
    from transcript_store import ConversationStore, snapshot_of

    with ConversationStore(directory / "c") as store:
        store.load()
        begin = _now()
        snapshot = snapshot_of(store)
        taken = _since(begin)
        assert snapshot.messages_json
    return taken


def _hold_snapshot(directory: Path) -> Taken:
    from transcript_store import Snapshot

    begin = _now()
    Snapshot.from_json((directory / "snapshot.json").read_bytes())
    return _since(begin)


def _restore_snapshot(directory: Path) -> Taken:
    from transcript_store import ConversationStore, Snapshot, restore_snapshot

    snapshot = Snapshot.from_json((directory / "snapshot.json").read_bytes())
    _forget_the_peak()
    with tempfile.TemporaryDirectory(dir=directory) as folder, ConversationStore(Path(folder) / "c") as store:
        begin = _now()
        restore_snapshot(snapshot, store)
        return _since(begin)


def _work(directory: Path) -> Taken:
    """What works with a conversation of any length, one after the other; prints how long each took."""
    from transcript_store import ConversationLibrary, ConversationStore, verify

    begin, last = _now(), time.perf_counter()

    def done(what: str) -> None:
        nonlocal last
        print(f"{what:<24}{duration(time.perf_counter() - last):>10}", file=sys.stderr, flush=True)
        last = time.perf_counter()

    with ConversationStore(directory / "c") as store:
        store.load()
        done("opens")
        store.append_message({"role": "user", "content": "one more"})
        done("appends")
        assert len(store.get_messages(last=50)) == 50
        done("shows its last 50")
        assert verify(directory / "c").is_intact
        done("is verified")
        library = ConversationLibrary(directory / "forks")
        library.fork_from(directory / "c")
        done("is forked")
        store.replace_transcript(store.get_messages(last=5))
        done("is archived")
        assert [len(store.get_records(generation=1)), store.generations()[0].damage] == [5, None]
        done("shows its generations")
    return _since(begin)


def _save(directory: Path) -> Taken:
    from transcript_store import FileStore, Snapshot

    snapshot = Snapshot.from_json((directory / "snapshot.json").read_bytes())
    _forget_the_peak()
    with tempfile.TemporaryDirectory(dir=directory) as folder:
        begin = _now()
        FileStore(folder).save(snapshot)
        return _since(begin)


def _load(directory: Path) -> Taken:
    from transcript_store import FileStore, Snapshot

    with tempfile.TemporaryDirectory(dir=directory) as folder:
        snapshot = Snapshot.from_json((directory / "snapshot.json").read_bytes())
        FileStore(folder).save(snapshot)
        its_id = snapshot.id
        del snapshot
        _forget_the_peak()
        begin = _now()
        FileStore(folder).load(its_id)
        return _since(begin)


def _peak_bytes() -> int:
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return 1024 * int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM")))


def _forget_the_peak() -> None:
    """Begin to count anew: what was needed to prepare the act is not the act's."""
    Path("/proc/self/clear_refs").write_text("5")


ACTS: dict[str, Callable[[Path], Taken]] = {
    "import": _import,
    "work": _work,
    "load()": _open,
    "snapshot_of()": _snapshot_of,
    "Snapshot.from_json()": _hold_snapshot,
    "restore_snapshot()": _restore_snapshot,
    "FileStore.save()": _save,
    "FileStore.load()": _load,
}


def measure(act: str, directory: Path) -> tuple[Taken, int]:
    """An act in a process of its own: how long it took, and the process's peak in bytes."""
    command = [sys.executable, "-m", "benchmarks.memory", "--act", act, "--directory", str(directory)]
    found = subprocess.run(command, cwd=TOP, check=True, capture_output=True, text=True).stdout
    taken, peak = json.loads(found)
    return Taken(*taken), peak


@contextmanager
def control_group(megabytes: int) -> Iterator[Path]:
    """A control group whose processes have so much memory together, of version 2 or 1, whichever this machine has."""
    for top, limit, peak in (
        (Path("/sys/fs/cgroup"), "memory.max", "memory.peak"),
        (Path("/sys/fs/cgroup/memory"), "memory.limit_in_bytes", "memory.max_usage_in_bytes"),
    ):
        group = top / f"benchmark-{os.getpid()}"
        group.mkdir()
        try:
            if (group / limit).exists():
                (group / limit).write_text(str(megabytes * 1_000_000))
                yield group
                print(
                    f"of {megabytes} MB it took {size(int((group / peak).read_text()))} at most, its files' cache among it"
                )
                return
        finally:
            group.rmdir()
    sys.exit("this machine has no control groups for memory")


def work_within(megabytes: int, directory: Path) -> None:
    """Do everything in a control group of so many megabytes; raises if the system ends the process."""
    command = [sys.executable, "-m", "benchmarks.memory", "--act", "work", "--directory", str(directory)]
    with control_group(megabytes) as group:
        joined = ["sh", "-c", f'echo $$ > {group}/cgroup.procs && exec "$@"', "sh", *command]
        (seconds, _), peak = json.loads(subprocess.run(joined, cwd=TOP, check=True, stdout=subprocess.PIPE).stdout)
        print(f"{duration(seconds)} in all; the process took {size(peak)} at most")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.memory", description=__doc__)
    parser.add_argument("--megabytes", type=int, default=99)
    parser.add_argument(
        "--within", type=int, metavar="MEGABYTES", help="do everything in a control group with so much memory"
    )
    parser.add_argument("--directory", type=Path)
    parser.add_argument("--act", choices=ACTS, help="do only this, in this process, with what is there")
    options = parser.parse_args()
    if options.act:
        print(json.dumps([ACTS[options.act](options.directory), _peak_bytes()]))
        return
    parent = options.directory or machine.default_directory(Path(tempfile.gettempdir()))
    with tempfile.TemporaryDirectory(prefix=".memory-", dir=parent) as folder:
        directory = Path(folder)
        make(directory / "c", options.megabytes)
        file_bytes = (directory / "c" / "transcript.jsonl").stat().st_size
        if options.within:
            print(f"a conversation of {size(file_bytes)}")
            work_within(options.within, directory)
            return
        prepare_snapshot(directory)
        _, baseline = measure("import", directory)
        print(f"a conversation of {size(file_bytes)}; a process that only imports takes {size(baseline)}")
        print(f"{'':<24}{'clock':>10}{'processor':>10}{'memory':>10}")
        for act in list(ACTS)[2:]:
            found = [measure(act, directory) for _ in range(3)]
            seconds, processor_seconds = (
                duration(min(column)) for column in zip(*(taken for taken, _ in found), strict=True)
            )
            above = max(peak for _, peak in found) - baseline
            print(
                f"{act:<24}{seconds:>10}{processor_seconds:>10}{size(above):>10}{above / file_bytes:>6.2f} × the file",
                flush=True,
            )


if __name__ == "__main__":
    main()
