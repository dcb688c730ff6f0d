"""Copilot chat in Visual Studio Code: ``chatSessions/<id>.json``, one document, or ``<id>.jsonl``, a log of operations on it.

Each of ``requests`` has a prompt and the reply as it was shown: text, thinking, calls (``toolInvocationSerialized``), references.
``result.metadata`` has the model's view: ``toolCallRounds`` with the arguments of calls, and ``toolCallResults``. Requests that an
operation removes, because the user went back or asked again, are an earlier generation.

Source: chatModel.ts, chatSessionStore.ts and chatSessionOperationLog.ts of microsoft/vscode. It was not run.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import repeat
from typing import Any
from urllib.parse import unquote, urlsplit

from transcript_store.formats._blocks import Block, Call, Media, Result, Text
from transcript_store.formats._dialogue import Dialogue, thinking
from transcript_store.formats._document import parse_object
from transcript_store.formats._lines import SourceLine, SourceLines, lines_of_document
from transcript_store.formats._members import Json, count_member, counts_of, first_text, obj, objects, present, text_in
from transcript_store.formats._neutral import arguments_of, media_at
from transcript_store.formats._plan import ImportFinding, SessionPlan, Source, SourceHead
from transcript_store.formats._replay import Allowance, Draft, Restart, Steps, facts_of, replayed
from transcript_store.formats._rows import object_beside
from transcript_store.formats._scaffolding import marked
from transcript_store.formats._times import time_in_ms

# ---- operations ----
#
# A log of operations on one JSON object, as Visual Studio Code writes it: ``{"kind", "k", "v", "i"}``, each on a line.
#
# Kind 0 is the whole object, 1 sets a member (``k`` is the path), 2 adds to an array, of which ``i`` are kept, and 3 deletes a member.
#
# Source: ``objectMutationLog.ts`` of microsoft/vscode.

WHOLE, SET, PUSH, DELETE = range(4)
_DEEPEST = 64


def is_operation(value: Json) -> bool:
    """True if it is one of the four, by its members."""
    kind, path = value.get("kind"), value.get("k")
    if type(kind) is not int or not WHOLE <= kind <= DELETE:
        return False
    return isinstance(value.get("v"), dict) if kind == WHOLE else isinstance(path, list) and bool(path)


def operation_path(value: Json) -> list[Any]:
    """Where an operation works; empty for the whole."""
    path = value.get("k")
    return path if isinstance(path, list) else []


def applied(state: Json, value: Json) -> Json | None:
    """The object after an operation, which may be the same one, changed; None if it does not fit the object."""
    if not is_operation(value):
        return None
    if value["kind"] == WHOLE:
        whole: Json = value["v"]
        return whole
    *way, last = operation_path(value)
    at: Any = state
    for name in way[:_DEEPEST]:
        at = at.get(name) if isinstance(at, dict) and isinstance(name, str) else _item(at, name)
    if isinstance(at, dict) and isinstance(last, str):
        return state if _in_object(at, last, value) else None
    if isinstance(at, list) and type(last) is int and 0 <= last <= len(at) and value["kind"] == SET:
        at[last : last + 1] = [value.get("v")]
        return state
    if isinstance(_item(at, last), list) and value["kind"] == PUSH:
        return state if _pushed(at[last], value) else None
    return None


def _in_object(at: Json, last: str, value: Json) -> bool:
    if value["kind"] == DELETE:
        at.pop(last, None)
    elif value["kind"] == SET:
        at[last] = value.get("v")
    else:
        if not isinstance(at.get(last), list):
            at[last] = []
        return _pushed(at[last], value)
    return True


def _pushed(array: list[Any], value: Json) -> bool:
    kept, added = value.get("i"), value.get("v")
    if kept is not None:
        if type(kept) is not int or kept < 0:
            return False
        del array[kept:]
    array += added if isinstance(added, list) else []
    return True


def _item(at: Any, name: Any) -> Any:
    return at[name] if isinstance(at, list) and type(name) is int and 0 <= name < len(at) else None


# ---- vscode parts ----
#
# The requests of Copilot chat as blocks: text, thinking, calls with their arguments and results, pictures.


def reply_blocks(request: Json) -> Iterator[Block]:
    """The blocks of a reply as it was shown, with the arguments and results that the model received."""
    metadata = obj(obj(request.get("result")).get("metadata"))
    rounds = objects(metadata.get("toolCallRounds"))
    calls = {text_in(call, "id"): call for one in rounds for call in objects(one.get("toolCalls"))}
    results = obj(metadata.get("toolCallResults"))
    for part in objects(request.get("response")):
        kind = part.get("kind")
        if kind == "thinking":
            value = part.get("value")
            said = "".join(one for one in (value if isinstance(value, list) else [value]) if isinstance(one, str))
            yield from [thinking(said)] if said else []
        elif kind == "toolInvocationSerialized":
            yield from _invocation(part, calls.get(text_in(part, "toolCallId"), {}), results)
        elif kind == "inlineReference":
            yield Text(f"`{_reference(part)}`")
        elif kind in (None, "markdownContent", "markdownVuln"):
            yield Text(_markdown(part if kind is None else part.get("content")))


def _invocation(part: Json, call: Json, results: Json) -> Iterator[Block]:
    number, name = text_in(part, "toolCallId"), text_in(call, "name") or text_in(part, "toolId")
    about = obj(part.get("toolSpecificData"))
    given = call.get("arguments", about or {"": _markdown(part.get("invocationMessage"))})
    yield Call(number, name, arguments_of(given))
    confirmed = part.get("isConfirmed")
    denied = confirmed is False or obj(confirmed).get("type") == 0
    said = [text_in(one, "value") for one in objects(obj(results.get(number)).get("content"))]
    shown = "\n".join(filter(None, said)) or _markdown(part.get("pastTenseMessage"))
    if shown or part.get("isComplete") is True:
        failed = denied or obj(part.get("resultDetails")).get("isError") is True
        yield Result(number, name, (Text(shown),), failed=failed)


def _markdown(value: object) -> str:
    return value if isinstance(value, str) else text_in(obj(value), "value")


def _reference(part: Json) -> str:
    of = obj(part.get("inlineReference"))
    places = of, obj(of.get("uri")), obj(obj(of.get("location")).get("uri"))
    path = first_text(*(place.get("path") for place in places)) or ""
    return first_text(part.get("name"), of.get("name"), path.rpartition("/")[2]) or "reference"


_TEXTS = {"paste": ("code",), "terminalCommand": ("command", "output")} | dict.fromkeys(
    ("string", "promptText", "workspace", "generic"), ("value",)
)
"""The members of an attachment that have its text, by its kind."""


def _text_of(variable: Json) -> str | None:
    """The text that an attachment has in itself; None of a file, a picture, a place in a file."""
    kind = first_text(variable.get("kind"))
    said = [found for member in _TEXTS.get(kind or "", ()) if (found := first_text(variable.get(member)))]
    return "\n".join(said) or None


def attached_in(variables: list[Json]) -> Iterator[Media | Text]:
    """The pictures and the texts that a prompt has beside it; the name of a picture without bytes."""
    for one in variables:
        if (said := _text_of(one)) is not None:
            yield Text(f"[{text_in(one, 'name') or 'pasted'}]\n{said}")
        if one.get("kind") == "image":
            value, kind = one.get("value"), text_in(one, "mimeType") or "image/png"
            data = value if isinstance(value, str) else text_in(obj(value), "$base64", "data")
            if data.startswith("data:"):
                yield media_at(data)
            else:
                yield Media(kind, data) if data else Text(f"[image: {text_in(one, 'name')}]")


# ---- vscode chat ----

_USUAL_BYTES = 2000
_STOPPED = {2: "cancelled", 3: "error"}
_STARTS = ("requesterUsername", "responderUsername", "initialLocation")


class VsCodeChat:
    """Reads Copilot's chats of Visual Studio Code."""

    name = "vscode-chat"

    def recognizes(self, head: SourceHead) -> bool:
        if head.objects and is_operation(head.objects[0]):
            state = head.objects[0].get("v")
            return head.objects[0]["kind"] == WHOLE and isinstance(state, dict) and "requests" in state
        return any(head.is_document_with("requests", name) for name in _STARTS)

    def plans(self, source: Source) -> Iterable[SessionPlan]:
        is_log = source.read(0, 64).lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b'{"kind"')
        lines = SourceLines(source)
        given, findings = (lines, list[ImportFinding]()) if is_log else lines_of_document(source, "requests")
        chat = _Chat(source, findings)
        said = replayed(source, chat.walk(given, is_log), lambda: _Chat(source, []).walk(given, is_log))
        if not chat.lines:
            return
        state = chat.state
        facts = facts_of(session=first_text(state.get("sessionId")) or chat.first, model=chat.model)
        facts.first(title=state.get("customTitle"), cwd=_folder(source, state))
        facts.first(version=str(state["version"]) if count_member(state.get("version")) is not None else None)
        more: Json = {
            "findings": [*findings, *(lines.findings if is_log else ())],
            "tail": lines.tail if is_log else b"",
        }
        dialogue = chat.dialogue
        yield facts.plan(self.name, chat.lines, said, dialogue.provider, dialogue.losses, edition=("", ""), **more)


def _folder(source: Source, state: Json) -> str | None:
    given = first_text(state.get("workingDirectory"), object_beside(source, "../workspace.json").get("folder")) or ""
    return unquote(urlsplit(given).path) if given.startswith("file://") else None


class _Chat:
    """The state of a chat as its lines are read."""

    def __init__(self, source: Source, findings: list[ImportFinding]) -> None:
        self._allowance = Allowance(source)
        self._is_allowed = True
        self._findings = findings
        self.dialogue = Dialogue()
        self.state: Json = {}
        self.model: str | None = None
        self.first = ""
        self.lines = 0
        self._of: dict[int, list[SourceLine]] = {}
        """The lines of each request, by its place."""
        self._others: list[SourceLine] = []

    def walk(self, lines: Iterable[SourceLine], is_log: bool) -> Steps:
        for line in lines:
            self.lines = line.last
            self.first = self.first or text_in(line.value or {}, "requestId", "sessionId") or "without an id"
            if not is_log:
                self._piece(line)
            elif line.raw:
                yield from self._operation(line, parse_object(line.raw) or {})
        for line in self._others:
            self.dialogue.event(line)
        yield from self._requests_out(0)

    def _piece(self, line: SourceLine) -> None:
        if line.number == 1:
            self.state = {**(line.value or {}), "requests": []}
            self._others += [line] if line.raw else []
        else:
            self._of[len(self.state["requests"])] = [line]
            self.state["requests"].append(line.value)

    def _operation(self, line: SourceLine, value: Json) -> Steps:
        path, requests = operation_path(value), objects(self.state.get("requests"))
        kept = value.get("i") if value.get("kind") == PUSH and path == ["requests"] else len(requests)
        if type(kept) is int and 0 <= kept < len(requests) and self._may_begin(kept):
            yield from self._requests_out(0)  # the user went back: the messages so far are a generation
            before = list(requests[:kept])
            yield Restart(taken_back=len(requests) - kept)
            self.state = {**self.state, "requests": before}
            self._of = {}
        after = applied(self.state, value)
        if after is None:
            message = "it does not fit the operations before it"
            self._findings.append(ImportFinding("bad-operation", message, line.number, line.offset))
            self._others.append(line)
            return
        first = after is not self.state and not self.state
        self.state = after
        place = next(iter(path[1:]), len(requests)) if path[:1] == ["requests"] else None
        if type(place) is int and not first and 0 <= place < len(objects(after.get("requests"))):
            self._of.setdefault(place, []).append(line)
        else:
            self._others.append(line)

    def _may_begin(self, kept: int) -> bool:
        """True if there may be another generation, which takes over so many requests of a usual size."""
        self._is_allowed = self._is_allowed and self._allowance.takes(repeat(_USUAL_BYTES, kept))
        return self._is_allowed

    def _requests_out(self, first: int) -> Iterator[Draft]:
        requests = objects(self.state.get("requests"))
        for place, request in enumerate(requests[first:], first):
            self._request(request, self._of.get(place, []))
        for place, found in sorted(self._of.items()):
            if place >= len(requests):
                self.dialogue.event(*found)
        self._of = {}
        yield from self.dialogue.take()

    def _request(self, request: Json, lines: list[SourceLine]) -> None:
        at, message = _time(request.get("timestamp")), request.get("message")
        said = message if isinstance(message, str) else text_in(obj(message), "text")
        shown = objects(obj(request.get("variableData")).get("variables"))
        attached = list(attached_in(shown))
        typed = said if any(_text_of(one) is not None for one in shown) else None
        draft = self.dialogue.user([Text(said), *attached], None, at, marked(typed, is_said=True))
        draft.lines += lines
        model, state = first_text(request.get("modelId")), obj(request.get("modelState"))
        self.model = model or self.model
        ended = _time(state.get("completedAt")) or at
        reply: Draft | None = None
        for piece in reply_blocks(request):
            if isinstance(piece, Result):
                self.dialogue.result(piece, None, ended)
            else:
                reply = self.dialogue.reply([piece], None, ended, {"model": model})
        if reply is not None:
            reply.extra |= _about(request, state)


def _about(request: Json, state: Json) -> Json:
    value = state.get("value")
    stopped = "cancelled" if request.get("isCanceled") is True else _STOPPED.get(value) if type(value) is int else None
    return present(
        response_id=first_text(request.get("responseId")),
        usage=counts_of(request, {"promptTokens": "prompt_tokens", "completionTokens": "completion_tokens"}),
        stop_reason=stopped,
        error=first_text(obj(obj(request.get("result")).get("errorDetails")).get("message")),
    )


def _time(value: Any) -> str | None:
    return time_in_ms(value) if count_member(value) else None
