"""Gemini CLI: ``chats/session-*.jsonl``, and the JSON documents of its earlier versions.

The first line is ``{"sessionId", "projectHash", "startTime", "lastUpdated", "kind"}``. The others are

* a message, ``{"id", "timestamp", "type", "content", "toolCalls", "thoughts", "tokens", "model"}``, repeated whenever it changes:
  the last line of an id counts, at the place of the first;
* ``{"$set": {…}}``: facts of the session; its ``messages`` replace all earlier ones;
* ``{"$rewindTo": id}``: takes back that message and all later ones; an unknown id takes back everything.

A reply's parts are those that the program sends when it resumes: thoughts, content, a ``functionCall`` for each of ``toolCalls``;
then a user content with the results, unless the next message has these. Only ``user`` and ``gemini`` are sent.

Source: ``chatRecordingService`` and ``convertSessionToClientHistory`` of @google/gemini-cli 0.61.0.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Any

from transcript_store.conversation import ConversationMetadata, Record
from transcript_store.formats._lines import SourceLine, SourceLines, lines_of_document
from transcript_store.formats._members import Json, counts_of, first_text, obj, objects, present
from transcript_store.formats._outgoing import handed, id_within, json_line
from transcript_store.formats._plan import ImportFinding, Loss, SessionPlan, Source, SourceHead, WrittenSession
from transcript_store.formats._replay import Allowance, Draft, Restart, SessionFacts, Steps, replayed
from transcript_store.formats._rows import text_beside
from transcript_store.formats._scaffolding import GEMINI_CLI, marked, texts_in

_LONGEST_SCENE = 50
"""The directories are among the first ten lines of the program's first text."""
_OPENED = re.compile(rb"(\xef\xbb\xbf)?\s*\{\s*\n")
_OPENING_BYTES = 64
_REPLIES = ("gemini", "model")
"""The second is the API's own word, in files that other programs wrote."""
_USAGE = {"input": "promptTokenCount", "output": "candidatesTokenCount", "cached": "cachedContentTokenCount"}
_USAGE |= {"thoughts": "thoughtsTokenCount", "tool": "toolUsePromptTokenCount", "total": "totalTokenCount"}


class GeminiCli:
    """Reads the sessions of Gemini CLI."""

    name = "gemini-cli"
    revision = 2

    def recognizes(self, head: SourceHead) -> bool:
        if head.objects:
            return any(map(_is_ours, head.objects))
        return head.is_document_with("sessionId", "projectHash")

    def plans(self, source: Source) -> Iterable[SessionPlan]:
        session = _Session()
        lines = None if _is_document(source) else SourceLines(source)

        def walk(session: _Session) -> Steps:
            given = _of_document(source, session) if lines is None else SourceLines(source)
            return _walk(given, session, Allowance(source), is_log=lines is not None)

        first = walk(session) if lines is None else _walk(lines, session, Allowance(source), is_log=True)
        said = replayed(source, first, lambda: walk(_Session()))
        if session.taken_back:
            message = f"messages are taken back very often: {session.taken_back:,} times this began no generation"
            session.findings.append(ImportFinding("many-generations", message))
        if session.lines:
            session.facts.first(session=hashlib.sha256(session.first).hexdigest())
            session.facts.cwd = session.facts.cwd or _directory_beside(source)
            findings, tail = session.findings, b"" if lines is None else lines.tail
            findings += [] if lines is None else lines.findings
            provider = "gemini" if session.speaks else None
            yield session.facts.plan(self.name, session.lines, said, provider, findings=findings, tail=tail)


def _directory_beside(source: Source) -> str | None:
    """The directory of the project, as ``.project_root`` beside the folder of its sessions names it."""
    said = text_beside(source, "../.project_root").decode(errors="replace").strip()
    return said if said.startswith("/") and "\n" not in said else None


def _is_ours(value: Json) -> bool:
    """True for the first line or a reply: a crash may tear the first line."""
    is_reply = value.get("type") == "gemini" and value.keys() >= {"id", "timestamp", "content"}
    return is_reply or (isinstance(value.get("sessionId"), str) and "projectHash" in value)


class _Session:
    """Facts of the session, complete after the last line."""

    def __init__(self) -> None:
        self.lines = 0
        self.speaks = False
        self.first = b""
        self.facts = SessionFacts()
        self.findings: list[ImportFinding] = []
        self._project: str | None = None
        """The SHA-256 of the path of the directory."""
        self.taken_back = 0
        """How often messages were taken back without a new generation."""

    def learn(self, about: Json) -> None:
        self.facts.first(session=about.get("sessionId"))
        self.facts.last(title=about.get("summary"))
        self._project = self._project or first_text(about.get("projectHash"))
        directories = about.get("directories")
        if isinstance(directories, list) and directories:
            self.facts.last(cwd=directories[0])

    def look_for_directory(self, scene: str) -> None:
        """Find the directory: the file has only its hash, but the program's first text has a line with the path."""
        for line in scene.splitlines()[:_LONGEST_SCENE] if self.facts.cwd is None else ():
            path = line.strip().removeprefix("- ")
            if hashlib.sha256(path.encode(errors="replace")).hexdigest() == self._project:
                self.facts.cwd = path
                return


def _speaks(value: Json) -> bool:
    """True for the message of a speaker. Some files that tools changed have messages without ids."""
    return value.get("type") in ("user", *_REPLIES) and bool(_parts(value.get("content", value.get("parts"))))


def _named(messages: list[Any]) -> dict[str, Json]:
    """Messages by id. One without an id, or with that of another one, is named by its position, which the next list repeats."""
    named: dict[str, Json] = {}
    for number, message in enumerate(objects(messages)):
        if isinstance(message.get("id"), str) or _speaks(message):
            name = first_text(message.get("id")) or f"message {number}"
            named[name if named.get(name, message) == message else f"{name} {number}"] = message
    return named


def _walk(lines: Iterable[SourceLine], session: _Session, allowance: Allowance, *, is_log: bool) -> Steps:
    context = _Context(session)
    may_restart = True
    for line in lines:
        session.lines = line.last
        session.first = session.first or line.raw
        if not line.raw:
            continue
        value = line.value or {}
        session.learn(value if "projectHash" in value else obj(value.get("$set")))
        if isinstance(value.get("$rewindTo"), str):
            kept = context.before(value["$rewindTo"]) if may_restart else {}
            may_restart = may_restart and allowance.takes(context.sizes[name] for name in kept)
            if may_restart:
                yield from context.restart(kept, taken_back=len(context.current) - len(kept))
            else:
                context.take_back(value["$rewindTo"])
            context.event(line)
        elif isinstance(value.get("id"), str) or _speaks(value):
            name = first_text(value.get("id")) or f"line {line.number} {line.part}"
            same = context.current.get(name)
            if same is not None and (same.get("type") != value.get("type") or not (is_log or same == value)):
                # Two messages of one id. In a log a later line of the same speaker is a later state of the message.
                name = f"{name} {value.get('type')}" if is_log else f"{name} {line.number}"
            context.message(name, value, line)
        else:
            replaced = obj(value.get("$set")).get("messages", value.get("messages"))
            if isinstance(replaced, list):
                given = _named(replaced)
                if not context.goes_on_as(given):
                    yield from context.restart({})
                context.event(line)
                for name, message in given.items():
                    if name not in context.current:
                        context.message(name, message, None)
                        context.sizes[name] = len(line.raw) // len(given)
            else:
                context.event(line)
    session.facts.last(model=first_text(*(one.get("model") for one in reversed(context.current.values()))))
    yield from context.entries()


class _Context:
    """The messages that are in force, and the entries of this generation in the order in which they began."""

    def __init__(self, session: _Session) -> None:
        self._session = session
        self.current: dict[str, Json] = {}
        self._slots: list[tuple[str | None, Draft]] = []
        self._places: dict[str, Draft] = {}
        self.sizes: dict[str, int] = {}
        """Of the messages, about: how many bytes of lines have them."""

    def event(self, line: SourceLine) -> None:
        self._slots.append((None, Draft(lines=[line], at=first_text(obj(line.value).get("timestamp")))))

    def message(self, name: str, value: Json, line: SourceLine | None) -> None:
        self.current[name] = value
        self._session.speaks = self._session.speaks or value.get("type") in ("user", *_REPLIES)
        if value.get("type") == "user" and self._session.facts.cwd is None:
            self._session.look_for_directory(_scene(value))
        if name not in self._places:
            self._places[name] = Draft()
            self._slots.append((name, self._places[name]))
        if line is not None:
            self._places[name].lines.append(line)
            self.sizes[name] = self.sizes.get(name, 0) + len(line.raw)

    def before(self, name: str) -> dict[str, Json]:
        kept: dict[str, Json] = {}
        for each, value in self.current.items():
            if each == name:
                return kept
            kept[each] = value
        return {}

    def take_back(self, name: str) -> None:
        """Take messages back without a new generation: they become events of this one."""
        self._session.taken_back += 1
        is_there = name in self.current
        while self.current:
            last, _ = self.current.popitem()
            del self._places[last]
            if is_there and last == name:
                return

    def goes_on_as(self, given: dict[str, Json]) -> bool:
        """True if ``given`` starts with the current messages: then nothing is replaced."""
        return list(self.current.items()) == list(given.items())[: len(self.current)]

    def restart(self, kept: dict[str, Json], *, taken_back: int = 0) -> Steps:
        yield from self.entries()
        self.current, self._slots, self._places = {}, [], {}
        for name, value in kept.items():
            self.message(name, value, None)
        # What was kept comes with the other entries, for a later line may change it.
        yield Restart(taken_back=taken_back)

    def entries(self) -> Iterator[Draft]:
        asked = (message for message in self.current.values() if message.get("type") == "user")
        answered = {name for message in asked for name in _answers(message)}
        given: set[str] = set()
        for name, draft in self._slots:
            if name is None or self._places.get(name) is not draft:
                if draft.lines:  # else it was taken over, and taken back here
                    yield draft
            else:
                yield from _entries(self.current[name], draft.lines, answered, given)


def _entries(value: Json, lines: list[SourceLine], answered: set[str], given: set[str]) -> Iterator[Draft]:
    """A message in the API's form, and the results of its calls that no other message has.

    A message that only repeats results in ``given`` is an event: 0.61.0 writes them twice when it resumes, and the API refuses a
    result that occurs twice.
    """
    at = first_text(value.get("timestamp"))
    parts = _parts(value.get("content", value.get("parts")))
    extra: Json = {}
    if value.get("type") == "user":
        extra = marked(GEMINI_CLI.typed_of(texts_in(parts)))
        message: Json | None = {"role": "user", "parts": parts}
        results = list(_answers(value))
        if results and len(results) == len(parts) and given.issuperset(results):
            message = None
        given.update(results)
    elif value.get("type") in _REPLIES:
        usage = counts_of(obj(value.get("tokens")), _USAGE)
        extra = present(model=first_text(value.get("model")), usage=usage)
        parts = _reply_parts(value, parts)
        message = {"role": "model", "parts": parts}
    else:
        message = None
    yield Draft(message if parts else None, extra, at, lines)
    own = [part for call in objects(value.get("toolCalls")) for part in _result(call, answered)]
    if message is not None and parts and own and value.get("type") in _REPLIES:
        yield Draft({"role": "user", "parts": own}, {}, at)


def _scene(message: Json) -> str:
    """The text that the program wrote in the user's name; empty if the user wrote it."""
    first = next((part["text"] for part in _parts(message.get("content")) if isinstance(part.get("text"), str)), "")
    return first if GEMINI_CLI.typed_of([first]) is not None else ""


def _reply_parts(value: Json, content: list[Json]) -> list[Json]:
    if any("functionCall" in part or part.get("thought") for part in content):
        return content
    calls = [
        {"functionCall": present(id=first_text(call.get("id"))) | {"name": call["name"], "args": call["args"]}}
        for call in objects(value.get("toolCalls"))
        if first_text(call.get("name")) and isinstance(call.get("args"), dict)
    ]
    return [*_thoughts(value), *content, *calls]


def _thoughts(value: Json) -> Iterator[Json]:
    for thought in objects(value.get("thoughts")):
        subject, said = first_text(thought.get("subject")), first_text(thought.get("description")) or ""
        if subject or said:
            yield {"text": f"**{subject}** {said}" if subject else said, "thought": True}


def _result(call: Json, answered: set[str]) -> Iterator[Json]:
    result, name, known_as = call.get("result"), first_text(call.get("name")), first_text(call.get("id"))
    if name is None or not isinstance(call.get("args"), dict) or known_as in answered or not result:
        return
    if isinstance(result, str):
        known = {"id": known_as} if known_as else {}
        yield {"functionResponse": {**known, "name": name, "response": {"output": result}}}
    else:
        yield from (part for part in _parts(result) if part)


def _answers(message: Json) -> Iterator[str]:
    """The ids of the calls that it answers."""
    for part in _parts(message.get("content")):
        if known_as := first_text(obj(part.get("functionResponse")).get("id")):
            yield known_as


def _parts(content: Any) -> list[Json]:
    """A text, a part, or a list of both, as parts."""
    members = content if isinstance(content, list) else [content]
    return [
        {"text": member} if isinstance(member, str) else member
        for member in members
        if (isinstance(member, str) and member) or (isinstance(member, dict) and member)
    ]


def _is_document(source: Source) -> bool:
    """True if it is one text over many lines, as the versions before wrote it."""
    return _OPENED.match(source.read(0, _OPENING_BYTES)) is not None


def _of_document(source: Source, session: _Session) -> Iterator[SourceLine]:
    """Its pieces as lines: first the session's facts, then a line per message."""
    lines, findings = lines_of_document(source)
    session.findings += findings
    yield from lines


# ---- gemini cli writer ----
#
# A conversation as a session of Gemini CLI: the log that it resumes, and the file by which it finds the folder of a project.
#
# The project's folder below ``tmp`` has the program's name for the directory, and ``.project_root`` in it has the path.
# ``toolCalls`` has a call with its result; the program makes the user's turn of it, so none is written.

_PASSED_OVER = "a message starts with / or ?: it is in the session, but the program does not send it to the model"
_NOT_IN_NAMES = re.compile(r"[^a-z0-9]+")


class GeminiCliWriter:
    """Writes sessions for Gemini CLI."""

    name = "gemini-cli"

    def write(
        self, records: Iterable[Record], metadata: ConversationMetadata, *, session: str, cwd: str, now: str
    ) -> WrittenSession:
        """See :class:`formats.SessionWriter`."""
        found = handed(records, metadata, "gemini", now)
        about: Json = {"sessionId": session, "projectHash": hashlib.sha256(cwd.encode()).hexdigest()}
        about |= {"startTime": now, "lastUpdated": now, "kind": "main"}
        if title := metadata.labels.get("title"):
            about["summary"] = title
        messages = [
            {"id": id_within(session, number), "timestamp": at, **message}
            for number, (message, at) in enumerate(_messages(found.messages))
        ]
        folder = f"tmp/{_NOT_IN_NAMES.sub('-', cwd.rstrip('/').rpartition('/')[2].lower()).strip('-') or 'project'}"
        name = f"session-{now[:16].replace(':', '-')}-{session[:8]}.jsonl"
        files = (
            (f"{folder}/.project_root", cwd.encode()),
            (f"{folder}/chats/{name}", b"".join(map(json_line, (about, *messages)))),
        )
        passed_over = sum(map(_is_passed_over, messages))
        losses = (*found.losses, Loss("commands", passed_over, _PASSED_OVER)) if passed_over else found.losses
        return WrittenSession(files, f"gemini --resume {session}", losses)


def _messages(given: tuple[tuple[dict[str, Any], str], ...]) -> Iterator[tuple[dict[str, Any], str]]:
    nothing: tuple[dict[str, Any], str] = ({}, "")
    for (turn, at), (following, _) in pairwise((*given, nothing)):
        parts = objects(turn.get("parts"))
        if turn.get("role") == "model":
            calls = [obj(part.get("functionCall")) for part in parts if "functionCall" in part]
            results = [part for part in objects(following.get("parts")) if "functionResponse" in part]
            made = [_call(call, results[number : number + 1], at) for number, call in enumerate(calls)]
            yield {"type": "gemini", "content": parts, "thoughts": [], **({"toolCalls": made} if made else {})}, at
        elif said := [part for part in parts if "functionResponse" not in part]:
            # The program skips a message that starts like a command as a whole, so such a part gets its own message.
            together = not _is_passed_over({"type": "user", "content": said})
            for content in [said] if together else [[part] for part in said]:
                yield {"type": "user", "content": content}, at


def _is_passed_over(message: dict[str, Any]) -> bool:
    """``isIgnoredUserContent`` of 0.61.0: what looks like a command to the program itself."""
    said = "".join(first_text(part.get("text")) or "" for part in objects(message["content"]))
    return message["type"] == "user" and said.strip().startswith(("/", "?"))


def _call(call: dict[str, Any], result: list[dict[str, Any]], at: str) -> dict[str, Any]:
    name = first_text(call.get("name")) or "tool"
    failed = any("error" in obj(obj(part.get("functionResponse")).get("response")) for part in result)
    known_as = first_text(call.get("id")) or hashlib.sha256(f"{at}/{name}".encode()).hexdigest()[:24]
    about = {"id": known_as, "name": name, "args": obj(call.get("args")), "result": result}
    return {**about, "status": "error" if failed else "success", "timestamp": at}
