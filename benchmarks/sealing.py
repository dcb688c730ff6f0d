"""Sealed conversations beside plain ones, and beside two peers that encrypt: ``python -m benchmarks.sealing``.

One run, one disk, one corpus. Each peer has what its documentation tells to install, in a virtual environment that this makes:

* OpenAI's Agents SDK: ``EncryptedSession`` (Fernet, a key of each session by HKDF) around ``SQLiteSession``; and ``SQLiteSession`` bare.
* LangGraph: ``SqliteSaver`` with ``EncryptedSerializer.from_pycryptodome_aes`` (AES-EAX), a checkpoint for each message; and without.

What is told of each is the time of its sealed form, that of its plain one, and how many times it is. Alternating, the best of the
rounds. And the loop that nobody can do without: base64, AES-GCM and orjson over the very records, with everything else made before
the clock runs.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
import time
import venv
from collections.abc import Callable
from pathlib import Path
from typing import Any

PEERS = ["openai-agents[encrypt]==0.24.0", "langgraph-checkpoint-sqlite==3.1.2", "pycryptodome==4.4.0"]
KEY = bytes(range(32))


def messages(count: int, characters: int) -> list[dict[str, str]]:
    """Messages of a conversation: text that does not repeat itself."""
    words = "the box in the kitchen was where we left it when the lorry came and nobody had looked".split()  # noqa: SIM905
    found = []
    for number in range(count):
        text = " ".join(
            words[(number * 7 + k * k) % len(words)] + str((number * 31 + k) % 97) for k in range(characters // 7)
        )
        found.append({"role": "assistant" if number % 2 else "user", "content": text[:characters]})
    return found


Work = tuple[Callable[[], object], Callable[[], object]]
"""Append everything, one call for each message; read everything."""


def ours(folder: Path, said: list[dict[str, str]], key: bytes | None, durability: str) -> Work:
    """A conversation of ours, its process alive between appending and reading."""
    from transcript_store import ConversationStore

    store = ConversationStore(folder, encryption_key=key, durability=durability)  # type: ignore[arg-type]
    store.initialize()

    def append() -> None:
        for message in said:
            store.append_message(message)

    def read() -> None:
        assert len(store.get_messages()) == len(said)

    return append, read


def openai_agents(folder: Path, said: list[dict[str, str]], key: bytes | None) -> Work:
    """A session on SQLite."""
    import asyncio

    from agents import SQLiteSession
    from agents.extensions.memory.encrypt_session import EncryptedSession

    bare = SQLiteSession("one", folder / "sessions.db")
    session: Any = bare if key is None else EncryptedSession("one", bare, encryption_key=key.hex(), ttl=10**9)
    loop = asyncio.new_event_loop()

    async def append_all() -> None:
        for message in said:
            await session.add_items([message])

    def read() -> None:
        assert len(loop.run_until_complete(session.get_items())) == len(said)

    return lambda: loop.run_until_complete(append_all()), read


def langgraph(folder: Path, said: list[dict[str, str]], key: bytes | None) -> Work:
    """A checkpoint for each message; each holds all messages up to there, as LangGraph's do."""
    import sqlite3

    from langgraph.checkpoint.base import empty_checkpoint
    from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
    from langgraph.checkpoint.sqlite import SqliteSaver

    serde = None if key is None else EncryptedSerializer.from_pycryptodome_aes(key=key)
    saver = SqliteSaver(sqlite3.connect(folder / "graph.db", check_same_thread=False), serde=serde)
    saver.setup()
    config: dict[str, Any] = {"configurable": {"thread_id": "one", "checkpoint_ns": ""}}

    def append() -> None:
        nonlocal config
        for number in range(1, len(said) + 1):
            checkpoint = empty_checkpoint()
            checkpoint["channel_values"] = {"messages": said[:number]}
            config = saver.put(config, checkpoint, {"source": "loop", "step": number, "parents": {}}, {})

    def read() -> None:
        found = saver.get_tuple({"configurable": {"thread_id": "one", "checkpoint_ns": ""}})
        assert found is not None
        assert len(found.checkpoint["channel_values"]["messages"]) == len(said)

    return append, read


def timed(work: Callable[[], object]) -> float:
    """Seconds."""
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def measured(make: Callable[..., Work], said: list[dict[str, str]], rounds: int, *options: Any) -> dict[str, float]:
    """Microseconds for each message, sealed and plain by turns, the best of the rounds; and the bytes that each takes."""
    best: dict[str, float] = {}
    for _ in range(rounds):
        for how, key in (("plain", None), ("sealed", KEY)):
            with tempfile.TemporaryDirectory() as folder:
                append, read = make(Path(folder) / "one" if make is ours else Path(folder), said, key, *options)
                for what, work, times in (("append", append, 1), ("read", read, 5)):
                    microseconds = min(timed(work) for _ in range(times)) / len(said) * 1e6
                    name = f"{what} {how}"
                    best[name] = min(best.get(name, microseconds), microseconds)
                files = [path for path in Path(folder).rglob("*") if path.is_file()]
                best[f"bytes {how}"] = sum(path.stat().st_size for path in files) / len(said)
    return best


def bare_loop(said: list[dict[str, str]], rounds: int) -> dict[str, float]:
    """The work that every reader of such records has to do, in microseconds for each message."""
    import orjson
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    from pybase64 import b64decode, b64encode

    cipher, nonce = AESGCM(KEY), bytes(12)
    place = "transcript-store/1/record/be8288fa-26fa-4885-afbc-0927ce01869f/0/{}/2026-11-24T00:00:00.000000Z"
    places = [place.format(number).encode() for number in range(1, len(said) + 1)]
    texts = [orjson.dumps({"message": message}) for message in said]
    sealed = [b64encode(nonce + cipher.encrypt(nonce, text, place)) for text, place in zip(texts, places, strict=True)]

    def read() -> None:
        opened = []
        for text, place in zip(sealed, places, strict=True):
            data = b64decode(text, validate=True)
            opened.append(cipher.decrypt(data[:12], data[12:], place))
        assert len(orjson.loads(b"[" + b",".join(opened) + b"]")) == len(said)

    return {"bare read": min(timed(read) for _ in range(3 * rounds)) / len(said) * 1e6}


CONTENDERS: dict[str, Callable[..., dict[str, float]]] = {
    "ours, each append synced": lambda said, rounds: measured(ours, said, rounds, "power-loss"),
    "ours, process-crash": lambda said, rounds: measured(ours, said, rounds, "process-crash"),
    "bare loop": bare_loop,
    "openai-agents": lambda said, rounds: measured(openai_agents, said, rounds),
    "langgraph": lambda said, rounds: measured(langgraph, said, rounds),
}


def python_of_the_peers(folder: Path) -> str:
    """The interpreter of a virtual environment that has the peers, and us; made once."""
    python = folder / "bin" / "python"
    if not (folder / "is-made").exists():
        venv.create(folder, with_pip=True, clear=True)
        here = str(Path(__file__).parent.parent)
        subprocess.run([python, "-m", "pip", "install", "-q", *PEERS, here], check=True)
        (folder / "is-made").touch()
    return str(python)


def main() -> None:
    """Measure, and print a table in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--messages", type=int, default=1000)
    parser.add_argument("--characters", type=int, default=1000, help="of each message")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--peers", type=Path, default=Path(tempfile.gettempdir()) / "transcript-store-sealing-peers")
    parser.add_argument("--only", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.only:
        found = CONTENDERS[given.only](messages(given.messages, given.characters), given.rounds)
        print(json.dumps(found))
        return
    python = python_of_the_peers(given.peers)
    print(f"{given.messages:,} messages of {given.characters:,} characters; microseconds for each message\n")
    print(
        "| | append, plain | sealed | times | read all, plain | sealed | times | size, times |\n|---|---|---|---|---|---|---|---|"
    )
    for name in CONTENDERS:
        few = (
            min(given.messages, 200) if name == "langgraph" else given.messages
        )  # its checkpoints hold all that is before
        options = [
            "--only",
            name,
            "--messages",
            str(few),
            "--characters",
            str(given.characters),
            "--rounds",
            str(given.rounds),
        ]
        done = subprocess.run(
            [python, "-m", "benchmarks.sealing", *options],
            check=True,
            capture_output=True,
            text=True,
            cwd=Path(__file__).parent.parent,
        )
        found = json.loads(done.stdout)
        if name == "bare loop":
            print(f"| {name} of a sealed read | | | | | {found['bare read']:.2f} | | |")
            continue
        row = [name]
        for what in ("append", "read"):
            plain, sealed = found[f"{what} plain"], found[f"{what} sealed"]
            row += [f"{plain:,.2f}", f"{sealed:,.2f}", f"{sealed / plain:.2f}"]
        print(f"| {' | '.join(row)} | {found['bytes sealed'] / found['bytes plain']:.2f} |", flush=True)


if __name__ == "__main__":
    main()
