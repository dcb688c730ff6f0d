"""What is measured, each beside the plainest way to do the same work; the targets stand where the rows are made."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from hashlib import file_digest, sha256
from itertools import count as count_up
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import orjson

from benchmarks.messages import messages, some_messages, text_messages
from benchmarks.timing import duration, interleave, middle, ratio
from transcript_store import ConversationLibrary, ConversationStore, FileStore, Snapshot, verify
from transcript_store._files import REAL
from transcript_store._metadata import MetadataDocument, decode_document, encode_document
from transcript_store._records import GENESIS, SUFFIX_BYTES, seal_line
from transcript_store.conversation import Durability

_HEAD = b'{"seq":100000,"at":"2026-11-21T12:00:00.000000Z","message":'
_TAIL = b',"hash":"0123456789abcdef0123456789abcdef"}\n'
_TRANSCRIPT = "transcript.jsonl"
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
_DURABILITIES: tuple[Durability, ...] = ("power-loss", "process-crash")

Message = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table; ``limit`` is the target for ``value``, a ratio where ``what`` names no unit."""

    what: str
    ours: str
    beside: str
    value: float
    spread: str
    limit: float | None = None
    note: str = ""


class Workplace:
    """Where the files go, and how much is measured."""

    def __init__(self, directory: Path, *, quick: bool) -> None:
        self.directory = directory
        self.messages = 10_000 if quick else 100_000
        self.conversations = 1_000 if quick else 10_000
        self.appending_rounds = 60 if quick else 300
        self.rounds = 3 if quick else 9
        self.starts = 10 if quick else 60

    @cached_property
    def conversation(self) -> Path:
        """A conversation of many messages, made once and never appended to."""
        path = self.directory / "conversation"
        with ConversationStore(path) as store:
            store.initialize(messages=islice(messages(), self.messages))
        return path


def _row(what: str, ours: list[float], beside: list[float], limit: float | None = None, note: str = "") -> Row:
    low, median, high = ratio(ours, beside)
    return Row(what, _median(ours), _median(beside), median, f"{low:.2f}–{high:.2f}", limit, note)


def _median(seconds: list[float]) -> str:
    return duration(middle(seconds).median)


def _size(count: float) -> str:
    return f"{count / 1e6:.0f} MB"


def _plain_line(message: Message) -> bytes:
    """What the plain way writes: encoded, hashed, and as long as a line of ours."""
    line = _HEAD + orjson.dumps(message) + _TAIL
    sha256(line).digest()
    return line


# ---- appending -------------------------------------------------------------------------------------------------------


def append(place: Workplace) -> Iterator[Row]:
    """One append, beside orjson, SHA-256, one write (and one sync) of as many bytes."""
    cases: tuple[tuple[Durability, int, int, int, float, str], ...] = (
        ("power-loss", 1024, place.appending_rounds, 8, 1.15, ""),
        ("power-loss", 65536, place.appending_rounds, 8, 1.15, ""),
        ("process-crash", 1024, place.appending_rounds * 4, 40, 4.0, "aim 3.3"),
    )
    for durability, encoded_bytes, rounds, calls, limit, note in cases:
        folder = place.directory / f"append-{durability}-{encoded_bytes}"
        plain_file = os.open(place.directory / "plain", _NEW_FILE | os.O_APPEND)
        given = text_messages(64, encoded_bytes)
        with ConversationStore(folder, durability=durability) as store:
            store.initialize()
            ways = [_appending(store, given), _writing(plain_file, given, sync=durability == "power-loss")]
            ours, plain = interleave(ways, rounds=rounds, calls=calls)
        os.close(plain_file)
        shutil.rmtree(folder)
        yield _row(f"append, {durability}, {encoded_bytes // 1024} KB", ours, plain, limit, note)


def _appending(store: ConversationStore, given: list[Message]) -> Callable[[], object]:
    turn = cycle(given)
    return lambda: store.append_message(next(turn))


def _writing(handle: int, given: list[Message], *, sync: bool) -> Callable[[], object]:
    turn = cycle(given)

    def write() -> None:
        os.write(handle, _plain_line(next(turn)))
        if sync:
            REAL.sync_data(handle)

    return write


def length(place: Workplace) -> Iterator[Row]:
    """The same append at growing lengths, beside itself at 10 messages."""
    lengths = [count for count in (10, 1_000, 10_000, 100_000) if count <= place.messages]
    folders = [place.directory / f"length-{count}" for count in lengths]
    for folder, count in zip(folders, lengths, strict=True):
        with ConversationStore(folder) as store:
            store.initialize(messages=islice(messages(), count))
    given = text_messages(64, 1024)
    for durability, calls in zip(_DURABILITIES, (2, 20), strict=True):
        stores = [ConversationStore(folder, durability=durability) for folder in folders]
        for store in stores:
            store.load()
        ways = [_appending(store, given) for store in stores]
        seconds = interleave(ways, rounds=place.appending_rounds, calls=calls)
        for store in stores:
            store.close()
        for count, at_length in zip(lengths, seconds, strict=True):
            what = f"append, {durability}, 1 KB, at {count:,} messages"
            yield _row(what, at_length, seconds[0], None, "flat: 1")
    for folder in folders:
        shutil.rmtree(folder)


# ---- reading ---------------------------------------------------------------------------------------------------------


def load(place: Workplace) -> Iterator[Row]:
    """load(), which verifies every line, beside a loop that keeps what orjson makes of each line and verifies nothing."""
    transcript = place.conversation / _TRANSCRIPT
    what = f"load(), {place.messages:,} messages, {_size(transcript.stat().st_size)}"

    def load_plainly() -> list[Any]:
        with transcript.open("rb") as file:
            return [orjson.loads(line) for line in file]

    def load_ours(*, read_only: bool) -> ConversationStore:
        store = ConversationStore(place.conversation, read_only=read_only)
        store.load()
        return store

    reading, writing, plain = interleave(
        [lambda: load_ours(read_only=True), lambda: load_ours(read_only=False), load_plainly],
        rounds=place.rounds,
        after=lambda loaded: loaded.close() if isinstance(loaded, ConversationStore) else None,
    )
    yield _row(f"{what}, read_only", reading, plain, 0.7, "aim 0.5")
    yield _row(f"{what}, as writer", writing, plain, 0.7, "aim 0.5")


_PEAK = """
import sys
import transcript_store
if len(sys.argv) > 1:
    store = transcript_store.ConversationStore(sys.argv[1], read_only=sys.argv[2] == "read_only")
    store.load()
print(next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")))
"""


def memory(place: Workplace) -> Iterator[Row]:
    """The peak of a process that loads above one that only imports, beside the size of the file. On Linux only."""
    if not Path("/proc/self/status").exists():
        return
    file_bytes = (place.conversation / _TRANSCRIPT).stat().st_size

    def peak(*arguments: str) -> int:
        # Not getrusage: there a process begins with the peak of the one that started it.
        command = [sys.executable, "-c", _PEAK, *arguments]
        return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout) * 1024

    for how in ("read_only", "as writer"):
        peaks = [float(peak(str(place.conversation), how) - peak()) for _ in range(3)]
        low, median, high = (bytes_above / file_bytes for bytes_above in middle(peaks))
        spread = f"{low:.2f}–{high:.2f}"
        yield Row(
            f"memory of load(), {how}", _size(median * file_bytes), _size(file_bytes), median, spread, 1.3, "aim 1.15"
        )


def get(place: Workplace) -> Iterator[Row]:
    """get_messages() of a loaded conversation, beside orjson on the same messages cut out beforehand."""
    with ConversationStore(place.conversation, read_only=True) as store:
        store.load()
        [seconds] = interleave([lambda: store.get_messages(last=50)], rounds=place.appending_rounds)
        low, median, high = (second * 1e3 for second in middle(seconds))
        yield Row("get_messages(last=50), ms", _median(seconds), "", median, f"{low:.2f}–{high:.2f}", 1.0)

        member = re.compile(rb',"message":(.*),"hash":"[0-9a-f]{32}"\}\n')
        with (place.conversation / _TRANSCRIPT).open("rb") as file:
            cut = [found[1] for line in file if (found := member.search(line))]
        assert len(cut) == place.messages
        ours, plain = interleave(
            [store.get_messages, lambda: [orjson.loads(message) for message in cut]], rounds=place.rounds
        )
    yield _row(f"get_messages(), {place.messages:,} messages", ours, plain, None, "aim 1.05")


def verification(place: Workplace) -> Iterator[Row]:
    """verify(), beside SHA-256 of the file."""

    def hash_file() -> bytes:
        with (place.conversation / _TRANSCRIPT).open("rb") as file:
            return file_digest(file, "sha256").digest()

    ours, plain = interleave([lambda: verify(place.conversation), hash_file], rounds=place.rounds)
    yield _row(f"verify(), {place.messages:,} messages", ours, plain)


# ---- many conversations ----------------------------------------------------------------------------------------------


def library(place: Workplace) -> Iterator[Row]:
    """list(), beside reading and decoding metadata.json, the header line and the last record of each."""
    root = place.directory / "library"
    given = text_messages(8, 1024)
    conversations = ConversationLibrary(root)
    with conversations.create(labels={"title": "a chat"}, system_prompt="x" * 200, messages=given) as store:
        made = Path(store.directory)
    for _ in range(place.conversations - 1):  # a create syncs, and takes its time
        chat = str(uuid.uuid4())
        shutil.copytree(made, root / chat)
        _rename(root / chat, made.name, chat)

    def look_plainly() -> list[tuple[Any, Any, Any]]:
        found = []
        for name in os.listdir(root):
            with open(f"{root}/{name}/metadata.json", "rb") as file:
                metadata = orjson.loads(file.read())
            with open(f"{root}/{name}/{_TRANSCRIPT}", "rb") as file:
                header = orjson.loads(file.readline())
                size = file.seek(0, os.SEEK_END)
                file.seek(max(0, size - 16 * 1024))
                last = orjson.loads(file.read().splitlines()[-1])
            found.append((metadata, header, last))
        return found

    assert [summary.damage for summary in conversations.list()] == [None] * place.conversations
    ours, plain = interleave([conversations.list, look_plainly], rounds=place.rounds)
    shutil.rmtree(root)
    yield _row(f"list(), {place.conversations:,} conversations", ours, plain, 1.5, "aim 1.3")


def _rename(folder: Path, old: str, new: str) -> None:
    """Give a copy of a conversation its own id: every hash of it is made anew."""
    head = GENESIS
    lines = []
    for line in (folder / _TRANSCRIPT).read_bytes().splitlines():
        sealed, head = seal_line(head, line[:-SUFFIX_BYTES].replace(old.encode(), new.encode()))
        lines.append(sealed)
    (folder / _TRANSCRIPT).write_bytes(b"".join(lines))
    document = decode_document((folder / "metadata.json").read_bytes())
    assert isinstance(document, MetadataDocument)
    assert document.mark is not None
    mark = document.mark._replace(position=document.mark.position._replace(head=head))
    (folder / "metadata.json").write_bytes(encode_document({**document.members, "id": new}, mark))


# ---- snapshots -------------------------------------------------------------------------------------------------------

_KEY = bytes(range(32))
_PEAK_OF_LIST = """
import sys
from transcript_store import FileStore
if len(sys.argv) > 1:
    key = bytes.fromhex(sys.argv[2]) or None
    listed = FileStore(sys.argv[1], encryption_key=key).list()
    assert len(listed) == int(sys.argv[3]), len(listed)
print(next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")))
"""


def snapshots(place: Workplace) -> Iterator[Row]:
    """list() of snapshots of 50 messages, beside reading and decoding every file with orjson; and its memory."""
    count = place.messages // 10
    mix = some_messages(2_000)
    for key, how in ((None, "plain"), (_KEY, "sealed")):
        folder = place.directory / f"snapshots-{how}"
        store = FileStore(folder, encryption_key=key)
        store.save(Snapshot.create(provider="claude", messages=mix[:50]))
        for number in range(count - 1):  # as save() writes them, without its syncs
            at = number * 50 % len(mix)
            one = Snapshot.create(provider="claude", model="a-model", messages=mix[at : at + 50])
            data = store._keys.seal(REAL.random_bytes(12), one.to_json())
            (folder / f"{one.id}.json").write_bytes(data)
        size = sum(path.stat().st_size for path in folder.glob("*.json"))

        def list_plainly(folder: Path = folder, store: FileStore = store) -> int:
            return len([orjson.loads(store._keys.open(path.read_bytes()))["model"] for path in folder.glob("*.json")])

        ours, plain = interleave([store.list, list_plainly], rounds=place.rounds)
        what = f"list(), {count:,} snapshots of 50 messages, {_size(size)}, {how}"
        yield _row(what, ours, plain, None, "beside: orjson decodes all")
        if Path("/proc/self/status").exists():
            arguments = [str(folder), (key or b"").hex(), str(count)]
            command = [sys.executable, "-c", _PEAK_OF_LIST]
            peaks = [
                [
                    int(subprocess.run([*command, *more], check=True, capture_output=True, text=True).stdout) * 1024
                    for more in (arguments, [])
                ]
                for _ in range(3)
            ]
            low, median, high = middle([(used - bare) / 1e6 for used, bare in peaks])
            yield Row(
                f"memory of that list(), MB above import, {how}",
                f"{median:.0f} MB",
                _size(size),
                median,
                f"{low:.0f}–{high:.0f}",
            )
        shutil.rmtree(folder)


# ---- replacing, starting ---------------------------------------------------------------------------------------------


def replace(place: Workplace) -> Iterator[Row]:
    """replace_transcript(), beside encoding, hashing, writing and syncing as many bytes to a new file."""
    count = 10_000
    given = some_messages(count)
    folder = place.directory / "replace"

    turn = count_up()

    def replace_plainly() -> None:  # the earlier files stay, as the earlier generations do
        data = b"".join(map(_plain_line, given))
        handle = os.open(place.directory / f"plain-{next(turn)}", _NEW_FILE)
        os.write(handle, data)
        os.fsync(handle)
        os.close(handle)

    with ConversationStore(folder) as store:
        store.initialize(messages=given)
        ours, plain = interleave([lambda: store.replace_transcript(given), replace_plainly], rounds=place.rounds)
    shutil.rmtree(folder)
    for path in place.directory.glob("plain-*"):
        path.unlink()
    yield _row(f"replace_transcript(), {count:,} messages", ours, plain, None, "aim 1.2")


def start(place: Workplace) -> Iterator[Row]:
    """Imports and the command's help, above a bare interpreter; byte code is cached, as it is once installed."""
    environment = {**os.environ, "PYTHONPYCACHEPREFIX": str(place.directory / "byte-code")}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    bare = [sys.executable, "-c", "pass"]
    commands = {
        "import orjson": [sys.executable, "-c", "import orjson"],
        "import transcript_store": [sys.executable, "-c", "import transcript_store"],
        "transcript-store --help": [sys.executable, "-m", "transcript_store.cli", "--help"],
    }
    ways = [
        partial(subprocess.run, command, check=True, stdout=subprocess.DEVNULL, env=environment)
        for command in (bare, *commands.values())
    ]
    nothing, *others = interleave(ways, rounds=place.starts)
    for what, taken in zip(commands, others, strict=True):
        low, median, high = middle([(a - b) * 1e3 for a, b in zip(taken, nothing, strict=True)])
        limit, note = (60.0, "aim 40") if what == "import transcript_store" else (None, "")
        what_above = f"{what}, ms above python"
        yield Row(what_above, _median(taken), _median(nothing), median, f"{low:.0f}–{high:.0f}", limit, note)


MEASUREMENTS: dict[str, Callable[[Workplace], Iterator[Row]]] = {
    "append": append,
    "length": length,
    "load": load,
    "memory": memory,
    "get": get,
    "verify": verification,
    "library": library,
    "snapshots": snapshots,
    "replace": replace,
    "start": start,
}
