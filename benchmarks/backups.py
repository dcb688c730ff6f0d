"""What a backup costs: ``python -m benchmarks.backups [CONVERSATIONS] [MESSAGES]``, the table of docs/operations.md.

Each row is a whole command, with the start of Python, on a library that it makes: messages of 100 random words, 1 KB each.
"""

from __future__ import annotations

import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from transcript_store import ConversationLibrary


def made(path: Path, conversations: int, messages: int) -> ConversationLibrary:
    chance, library = random.Random(1), ConversationLibrary(path)
    words = [f"{chance.getrandbits(40):x}" for _ in range(2000)]
    with library.group() as group:
        for number in range(conversations):
            texts = (" ".join(chance.choices(words, k=100)) for _ in range(messages))
            group.add(
                messages=[{"role": "user", "content": text} for text in texts], labels={"title": f"number {number}"}
            )
    return library


def size_of(path: Path) -> float:
    files = [path] if path.is_file() else path.rglob("*")
    return sum(file.stat().st_size for file in files if file.is_file()) / 1e6


def main() -> None:
    conversations, messages = (int(word) for word in (*sys.argv[1:], "1000", "100")[:2])
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        library = made(folder / "chats", conversations, messages)
        key = folder / "key"
        key.write_bytes(os.urandom(32))
        key.chmod(0o600)
        chats, copy, plain, sealed = (str(folder / name) for name in ("chats", "copy", "plain.backup", "sealed.backup"))
        print(f"{conversations:,} conversations of {messages} messages, {size_of(folder / 'chats'):.0f} MB\n")
        print("| what | seconds |\n|---|---:|")

        def row(what: str, *words: str) -> None:
            begin = time.perf_counter()
            subprocess.run([sys.executable, "-m", "transcript_store", *words], check=True, capture_output=True)
            print(f"| {what} | {time.perf_counter() - begin:.1f} |", flush=True)

        def grow() -> None:
            for summary in library.list()[: max(conversations // 100, 1)]:
                with library.open(str(summary.id)) as conversation:
                    conversation.append_message({"role": "user", "content": "more"})

        row("`backup` to a folder, the first time", "backup", chats, copy)
        row("again, nothing new", "backup", chats, copy)
        row("`backup` to a file, the first time", "backup", chats, plain)
        row("again, nothing new", "backup", chats, plain)
        row("to a sealed file", "backup", chats, sealed, "--key-file", str(key))
        grow()
        row("to the folder, when one in a hundred has grown", "backup", chats, copy)
        row("to the file, the same", "backup", chats, plain)
        row("`restore` of the file", "restore", plain, str(folder / "back"))
        row("`restore` of the file again", "restore", plain, str(folder / "back"))
        row("`verify` of the folder", "verify", copy)
        memory = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
        print(
            f"\nfile {size_of(Path(plain)):.0f} MB, sealed {size_of(Path(sealed)):.0f} MB; at most {memory:.0f} MB of memory"
        )


if __name__ == "__main__":
    main()
