"""What holds of every session file that is imported, whoever wrote it: ``python -m tests.session_properties FOLDER…``.

Nobody knows the right answer for a file from outside. So each is held to what can be checked without it:

* P-said: each text that a user or a model said is in ``show --full`` of one of its generations, in the search and on the page;
* P-pairs: each result stands behind the call that it answers;
* P-times: times ascend within a generation, and those of messages are the source's;
* P-name: the name of a conversation is something that the user typed, or that the program calls it;
* P-twice: a second import changes nothing;
* P-bytes: ``export --to original`` gives the bytes;
* P-one: one format alone claims the file; a file that none claims is refused or passed over;
* P-empty: a file is left out as empty only if nobody says anything in it.

What is said is read from the JSON by one rule for all programs (:func:`said_in`), with none of the library's readers.
"""

from __future__ import annotations

import html
import io
import json
import re
import sys
import tempfile
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

from transcript_store import ConversationLibrary, ConversationStore
from transcript_store.cli import main
from transcript_store.exporting import export
from transcript_store.formats import READERS, Call, Result, to_neutral
from transcript_store.importing import ImportReport, import_conversations
from transcript_store.naming import first_prompt
from transcript_store.search import SearchIndex
from transcript_store.sources import FileSource, find_sources, open_parts
from transcript_store.view import render_page

_SPEAKERS = frozenset({"user", "human", "assistant", "model", "gemini"})
_WORD = re.compile(r"(?<!\w)[A-Za-z0-9]{3,40}(?!\w)")
_NOT_SHOWN = re.compile("\ue200[^\ue201]*\ue201|```\\w+")
"""What ChatGPT writes for a citation, whose address stands elsewhere; the language of code, which a page shows by its colours."""
_OWN_WORDS = ("No response requested.", "(no content)")
_MOST_TEXTS = 400
"""Of a file; a longer one is looked at from both ends."""


def said_in(value: Any) -> Iterator[str]:
    """The texts that a user or a model said, in one object of a session: a message that names its speaker, with its content."""
    if isinstance(value, list):
        for one in value:
            yield from said_in(one)
        return
    if not isinstance(value, dict):
        return
    if value.get("isApiErrorMessage") is True or value.get("isVisibleInTranscriptOnly") is True:
        return
    if str(value.get("type")).startswith("api-request"):  # Claude Code's own copy of what it sends
        return
    metadata = value.get("metadata")
    unsaid = (
        "is_visually_hidden_from_conversation",
        "displayOnly",
    )  # the second: Cline's own words, which it never sends
    if isinstance(metadata, dict) and any(metadata.get(name) is True for name in unsaid):
        return
    author = value.get("author")
    role = author.get("role") if isinstance(author, dict) else value.get("role", value.get("sender", value.get("type")))
    content = value.get("content", value.get("parts"))
    if isinstance(content, dict):
        content = content.get("parts")
    if isinstance(role, str) and role in _SPEAKERS and content is not None:
        yield from _texts_in(content)
        return
    for name in (
        "message",
        "llm_message",
        "history",
        "payload",
        "mapping",
        "chat_messages",
        "messages",
        "$set",
        "conversations",
        "event",
    ):
        inner = value.get(name)
        yield from said_in([*inner.values()] if name == "mapping" and isinstance(inner, dict) else inner)


def _texts_in(content: Any) -> Iterator[str]:
    for one in content if isinstance(content, list) else [content]:
        said = one.get("text") if isinstance(one, dict) and one.get("thought") is not True else one
        kind = one.get("type", "text") if isinstance(one, dict) else "text"
        if isinstance(said, str) and kind in ("text", "input_text", "output_text") and said.strip() not in _OWN_WORDS:
            yield _NOT_SHOWN.sub(" ", said)


def texts_of_file(data: bytes) -> list[str]:
    """The texts that were said in a file of JSON, or of JSON lines."""
    try:
        values = [json.loads(data)]
    except ValueError:
        values = []
        for line in data.split(b"\n"):
            try:
                values.append(json.loads(line))
            except ValueError:
                continue
    found = list(dict.fromkeys(said for said in said_in(values) if len(_WORD.findall(said)) >= 1))
    return found if len(found) <= _MOST_TEXTS else found[: _MOST_TEXTS // 2] + found[-_MOST_TEXTS // 2 :]


def bytes_of(path: Path) -> bytes:
    """What a reader gets of a file: of one that stands for a folder, the lines of the files in it."""
    with open_parts(str(path)) as parts:
        read = [
            part[1].read(0, part[1].size) if isinstance(part, tuple) and isinstance(part[1], FileSource) else None
            for part in parts
        ]
    return read[0] if len(read) == 1 and read[0] is not None else path.read_bytes()


def problems_of(path: Path) -> Iterator[str]:
    """What does not hold of one file."""
    with open_parts(str(path)) as parts:
        claims = [
            [reader.name for reader in READERS if reader.recognizes(part[0])]
            for part in parts
            if isinstance(part, tuple)
        ]
    if any(len(names) > 1 for names in claims):
        yield f"P-one: {claims}"
    with tempfile.TemporaryDirectory() as folder:
        library = ConversationLibrary(Path(folder) / "library")
        reports = list(import_conversations([path], library))
        if not any(claims):
            if any(report.action not in ("refused", "skipped", "empty") for report in reports):
                yield f"P-one: nobody claims it, and it is {[report.action for report in reports]}"
            return
        again = list(import_conversations([path], library))
        if [one.action for one in again if one.action not in ("unchanged", "refused", "empty")]:
            yield f"P-twice: {[one.action for one in again]}"
        if any(report.action == "empty" for report in reports) and (said := texts_of_file(bytes_of(path))):
            yield f"P-empty: it is left out, and {said[0][:60]!r} is said in it"
            return
        stored = [report for report in reports if report.id is not None]
        yield from _said_problems(path, library, Path(folder), stored)
        for report in stored:
            yield from _problems_of_one(path, library, report)
        whole = [report for report in stored if not report.is_part]
        is_text = path.suffix not in (".zst", ".zip", ".db", ".sqlite")
        if len(whole) == 1 and is_text and not any(f.kind == "torn" for f in whole[0].findings):
            bytes_back = io.BytesIO()
            export(library, whole[0].id, to="original", output=bytes_back)
            if bytes_back.getvalue() != bytes_of(path):
                yield "P-bytes: other bytes come back"


def _said_problems(
    path: Path, library: ConversationLibrary, folder: Path, reports: list[ImportReport]
) -> Iterator[str]:
    shown, pages = "", ""
    for report in reports:
        directory = Path(library.directory) / str(report.id)
        with ConversationStore(directory, read_only=True) as store:
            store.load()
            live = store.get_metadata().generation
        for generation in range(live + 1):
            shown += _shown(directory, generation)
        pages += html.unescape(re.sub(r"<[^>]+>", " ", b"".join(render_page(directory, plain=True)).decode()))
    words_shown, words_on_page = (set(_WORD.findall(text)) for text in (shown, pages))
    with SearchIndex(library, cache=folder / "cache") as index:
        index.update()
        for said in texts_of_file(bytes_of(path)):
            words = list(dict.fromkeys(_WORD.findall(said[:20_000])))[:12]
            for where, known in (("show --full", words_shown), ("the page", words_on_page)):
                if missing := [word for word in words if word not in known]:
                    yield f"P-said: {said[:60]!r} is not in {where}: {missing[:3]}"
            query = " ".join(f'"{word}"' for word in words[:6])
            if not index.search(query, limit=1).hits:
                yield f"P-said: {said[:60]!r} is not found"


def _shown(directory: Path, generation: int) -> str:
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        main(["show", str(directory), "--full", "--plain", "--no-pager", "--generation", str(generation)])
    return out.getvalue()


def _problems_of_one(path: Path, library: ConversationLibrary, report: ImportReport) -> Iterator[str]:
    directory = Path(library.directory) / str(report.id)
    source = bytes_of(path).decode(errors="replace")
    with ConversationStore(directory, read_only=True) as store:
        store.load()
        metadata = store.get_metadata()
        for number in range(metadata.generation + 1):
            records = store.get_records(generation=None if number == metadata.generation else number)
            times = [record.at for record in records]
            if times != sorted(times):
                yield f"P-times: generation {number} does not ascend"
            dated = [
                record
                for record in records
                if record.message is not None and "at" not in (record.extra or {}).get("source", {})
            ]
            if dated and re.search(r"20[0-9]{2}-[01][0-9]-[0-3][0-9]T", source):
                strange = [
                    record.seq for record in dated if record.at[:16] not in source and record.at[:10] not in source
                ]
                if strange:
                    yield f"P-times: generation {number}: {len(strange)} messages have a time that is not the source's, such as #{strange[0]}"
            if metadata.provider is not None:
                yield from _pair_problems(records, metadata.provider, number)
    name = metadata.labels.get("title") or first_prompt(directory)
    if name is not None and name.lstrip().startswith(
        ("<", "# AGENTS.md", "Caveat:", "This session is being continued", "[Request")
    ):
        yield f"P-name: it is called {name[:60]!r}"


def _pair_problems(records: Any, provider: str, number: int) -> Iterator[str]:
    open_calls: set[str] = set()
    for record in records:
        for turn in to_neutral((record.message,), provider) if record.message is not None else ():
            for block in turn.blocks:
                if isinstance(block, Call):
                    open_calls.add(block.id)
                elif isinstance(block, Result) and block.id and block.id not in open_calls:
                    yield f"P-pairs: generation {number}: the result #{record.seq} answers no call before it"


def check(folders: list[Path]) -> int:
    """Check every file below these folders; returns how many have a problem, which it prints."""
    files = [Path(found.path) for folder in folders for found in find_sources(folder)]
    wrong = 0
    for path in files:
        try:
            found = list(problems_of(path))
        except Exception as error:
            found = [f"{type(error).__name__}: {error}"]
        wrong += bool(found)
        for problem in found[:6]:
            print(f"{path}: {problem}")
        if len(found) > 6:
            print(f"{path}: and {len(found) - 6} more")
    print(f"{len(files)} files, {wrong} with a problem")
    return wrong


if __name__ == "__main__":
    sys.exit(1 if check([Path(name) for name in sys.argv[1:]]) else 0)
