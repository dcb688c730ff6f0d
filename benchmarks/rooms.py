"""How many rooms a message walks through: ``python benchmarks/rooms.py [CHECKOUT]``, of this checkout or of another one.

Each path is walked once to warm it up and once under a profiler. Counted are the calls of the package's own functions, the
modules and folders in which they stand, and how often the next call of ours stands in another one.
"""

from __future__ import annotations

import json
import sys
import tempfile
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise
from pathlib import Path

CHECKOUT = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent.parent).resolve()
PACKAGE = CHECKOUT / "transcript_store"
ROOMS_WITHOUT_A_DOOR = {"<lambda>", "<genexpr>", "<listcomp>", "<dictcomp>", "<setcomp>"}
ANSWER = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "m",
    "content": [{"type": "text", "text": "Hello."}],
    "stop_reason": "end_turn",
    "stop_sequence": None,
    "usage": {"input_tokens": 1, "output_tokens": 1},
}


class _Model(BaseHTTPRequestHandler):
    """Answers every request with the same message."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        data = json.dumps(ANSWER).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def walk(path: Callable[[], object]) -> list[Path]:
    """The files of the package that a call goes through, in order."""
    seen: list[Path] = []

    def note(frame: object, event: str, _: object) -> None:
        code = frame.f_code  # type: ignore[attr-defined]
        if event == "call" and code.co_name not in ROOMS_WITHOUT_A_DOOR and code.co_filename.startswith(str(PACKAGE)):
            seen.append(Path(code.co_filename))

    sys.setprofile(note)
    try:
        path()
    finally:
        sys.setprofile(None)
    return seen


def row(name: str, path: Callable[[], object]) -> None:
    path()
    files = walk(path)
    folders = [file.parent for file in files]
    changes = [sum(a != b for a, b in pairwise(places)) for places in (files, folders)]
    print(f"{name:<28}{len(files):>7}{len(set(files)):>9}{changes[0]:>9}{len(set(folders)):>9}{changes[1]:>9}")


def main() -> None:
    sys.path.insert(0, str(CHECKOUT))
    from transcript_store import ConversationStore, FileStore, generate_encryption_key, restore_snapshot, snapshot_of
    from transcript_store.chat import ChatConfig, create_client

    server = ThreadingHTTPServer(("127.0.0.1", 0), _Model)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    folder = Path(tempfile.mkdtemp())
    numbers = iter(range(1000))
    message = {"role": "user", "content": "Hello."}
    store = ConversationStore(folder / "a")
    store.initialize(provider="claude")
    store.append_message(message)

    def load() -> None:
        store.close()
        store.load()

    def initialize() -> None:
        with ConversationStore(folder / str(next(numbers))) as new:
            new.initialize(provider="claude")

    def restore() -> None:
        with ConversationStore(folder / str(next(numbers))) as new:
            restore_snapshot(snapshot, new)

    print(f"{'':<28}{'calls':>7}{'modules':>9}{'changes':>9}{'folders':>9}{'changes':>9}")
    row("append_message, durable", lambda: store.append_message(message))
    row("get_messages", store.get_messages)
    row("update_metadata", lambda: store.update_metadata(labels={"title": str(next(numbers))}))
    row("replace_transcript", lambda: store.replace_transcript([message]))
    row("load after a clean close", load)
    row("initialize", initialize)
    row("snapshot_of", lambda: snapshot_of(store))
    snapshot = snapshot_of(store)
    sealed = FileStore(folder / "s", encryption_key=generate_encryption_key())
    row("FileStore.save, sealed", lambda: sealed.save(snapshot))
    row("FileStore.load, sealed", lambda: sealed.load(snapshot.id))
    row("restore_snapshot", restore)
    store.close()
    with ConversationStore(folder / "chat") as conversation:
        host = f"http://127.0.0.1:{server.server_port}"
        config = ChatConfig(provider="claude", model="m", token="sk-nobody", base_url=host)
        client = create_client(config, conversation=conversation, allow_insecure_base_url=True)
        row("a chat turn (Claude)", lambda: client.chat("Hello."))
    server.shutdown()


if __name__ == "__main__":
    main()
