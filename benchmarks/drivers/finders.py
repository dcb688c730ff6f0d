"""Who else finds messages, each in its own environment: ``python finders.py NAME TEXTS FOLDER`` with the queries on standard input.

The peers' environments do not have this library, so the file stands alone. TEXTS has a line for each message, as JSON: the
number of its conversation, and its text. What is printed at the end is JSON: the seconds to build, the bytes on disk, and for
each query the seconds of each call and how many it found.
"""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

LIMIT = 20
Ask = Callable[[str], int]
"""Asks a query, and takes the excerpts of the first twenty; how many messages match."""


def tantivy(texts: list[tuple[int, str]], folder: Path) -> Ask:
    """Its documented way: a stored text, the default tokenizer, and a snippet for each hit."""
    import tantivy

    builder = tantivy.SchemaBuilder()
    builder.add_text_field("text", stored=True)
    builder.add_unsigned_field("number", stored=True)
    schema = builder.build()
    index = tantivy.Index(schema, path=str(folder))
    writer = index.writer(heap_size=128_000_000)
    for number, (_, text) in enumerate(texts):
        writer.add_document(tantivy.Document(text=text, number=number))
    writer.commit()
    writer.wait_merging_threads()
    index.reload()

    def ask(query: str) -> int:
        parsed = index.parse_query(query, ["text"], conjunction_by_default=True)
        searcher = index.searcher()
        found = searcher.search(parsed, LIMIT, count=True)
        snippets = tantivy.SnippetGenerator.create(searcher, parsed, schema, "text")
        for _, address in found.hits:
            snippets.snippet_from_doc(searcher.doc(address)).to_html()
        return int(found.count)

    return ask


def llm(texts: list[tuple[int, str]], folder: Path) -> Ask:
    """Two messages are a turn, logged by its own call, with no wait for the disk. Asked is the command, as there is no call."""
    import llm as library
    import sqlite_utils
    from llm.logs import LogStore

    class Model(library.Model):
        model_id = "benchmark"

        def execute(self, *_: Any, **__: Any) -> Iterator[str]:
            yield ""

    path, model = folder / "logs.db", Model()
    database = sqlite_utils.Database(path)
    LogStore(database)
    database.execute("PRAGMA synchronous=OFF")
    for number in range(0, len(texts), 2):
        said, answered = texts[number][1], texts[number + 1][1]
        messages = [
            {"role": role, "parts": [{"type": "text", "text": text}]}
            for role, text in (("user", said), ("assistant", answered))
        ]
        data = {"model": model.model_id, "prompt": {"messages": messages[:1]}, "messages": messages[1:]}
        response = library.Response.from_dict(data, model=model)
        response.conversation = library.Conversation(model=model, id=f"conversation-{number}")
        response.log_to_db(database)
    database.close()
    command = [
        str(Path(sys.executable).with_name("llm")),
        "logs",
        "list",
        "-d",
        str(path),
        "-n",
        str(LIMIT),
        "--json",
        "-q",
    ]

    def ask(query: str) -> int:
        done = subprocess.run([*command, query], capture_output=True, check=True)
        return len(json.loads(done.stdout))

    return ask


def claude_code_log(texts: list[tuple[int, str]], folder: Path) -> Ask:
    """What its ``serve`` does: every page is made, then the index, which its search page asks."""
    from claude_code_log.cache import get_cache_db_path
    from claude_code_log.converter import process_projects_hierarchy
    from claude_code_log.search import count_matches, ensure_index, search

    project = folder / "projects" / "-home-me-project"
    project.mkdir(parents=True)
    for conversation, messages in groupby(texts, key=lambda one: one[0]):
        session = f"00000000-0000-4000-8000-{conversation:012}"
        with (project / f"{session}.jsonl").open("w", encoding="utf-8") as file:
            for place, (_, text) in enumerate(messages):
                file.write(json.dumps(_line(session, conversation, place, text), ensure_ascii=False) + "\n")
    process_projects_hierarchy(folder / "projects", silent=True)
    connection = sqlite3.connect(get_cache_db_path(folder / "projects"))
    ensure_index(connection)

    def ask(query: str) -> int:
        search(connection, query, limit=LIMIT)
        return int(count_matches(connection, query))

    return ask


def _line(session: str, conversation: int, place: int, text: str) -> dict[str, Any]:
    role = ("user", "assistant")[place % 2]
    own_id = f"{conversation:08}-0000-4000-8000-{place:012}"
    before = f"{conversation:08}-0000-4000-8000-{place - 1:012}" if place else None
    message: dict[str, Any] = {"role": role, "content": text if role == "user" else [{"type": "text", "text": text}]}
    if role == "assistant":
        message |= {"id": own_id, "type": "message", "model": "claude", "stop_reason": None, "stop_sequence": None}
        message["usage"] = {"input_tokens": 1, "output_tokens": 1}
    return {
        "type": role, "uuid": own_id, "parentUuid": before, "sessionId": session, "message": message, "isSidechain": False,
        "userType": "external", "cwd": "/home/me/project", "version": "2.0.0",
        "timestamp": f"2026-01-01T00:{place // 60:02}:{place % 60:02}.000Z",
    }  # fmt: skip


FINDERS = {"tantivy": tantivy, "llm": llm, "claude-code-log": claude_code_log}


def main() -> None:
    name, lines, folder = sys.argv[1], sys.argv[2], Path(sys.argv[3])
    with Path(lines).open(encoding="utf-8") as file:
        texts = [(conversation, text) for conversation, text in map(json.loads, file)]
    queries = json.load(sys.stdin)
    began = time.perf_counter()
    ask = FINDERS[name](texts, folder)
    built = time.perf_counter() - began
    size = sum(
        file.stat().st_size
        for file in folder.rglob("*")
        if file.is_file() and os.path.splitext(file)[1] not in (".jsonl", ".html")
    )
    asked = {}
    for query in queries:
        took, count = [], ask(query)
        for _ in range(5 if name == "llm" else 15):
            began = time.perf_counter()
            ask(query)
            took.append(time.perf_counter() - began)
        asked[query] = {"took": took, "count": count}
    print(json.dumps({"built": built, "size": size, "asked": asked}))


if __name__ == "__main__":
    main()
