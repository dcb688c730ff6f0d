"""One request: what of the record is sent, and its reply, which is on record before anybody acts on it. It knows no provider's format."""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing
from dataclasses import replace
from typing import Any

from transcript_store import IncompleteResponseError, InvalidMessageError
from transcript_store.chat._config import ChatConfig, Tool
from transcript_store.chat._history import History
from transcript_store.chat._protocols import StreamEvent, TextDelta, Usage
from transcript_store.chat._provider import JSON, Connection, Reply, Request, Wire
from transcript_store.chat._settings import Facts
from transcript_store.chat._tool_results import opened, paired
from transcript_store.messages import tokens_in

_PIECES = "[redacted:pieces]"


class Requests:
    """The requests of one client, each made of its history as it is then."""

    def __init__(
        self, *, config: ChatConfig, wire: Wire, connection: Connection, history: History, facts: Facts
    ) -> None:
        self._config = config
        self._wire = wire
        self._connection = connection
        self._history = history
        self._facts = facts
        self.usage = Usage()
        """What the replies took so far."""

    def reply(self, tools: Iterable[Tool], *, stream: bool, schema: JSON | None) -> Generator[StreamEvent, None, Reply]:
        """Ask for one reply. On return it is whole and on record. A reply that ended early is recorded, and the error raised.

        So is it recorded if the provider refuses what was asked: then later requests leave that out.
        """
        body = self._wire.request(self._request(tools, schema), stream=stream)
        try:
            if stream:
                reply = yield from self._streamed_reply(body)
            else:
                reply = _understood(self._wire.reply, self._connection.send(self._facts.model, body))
                self._keep(reply)
        except Exception as error:
            if (refusal := self._connection.refusal(error)) is not None:
                self._history.refuse(refusal)
            raise
        if reply.incomplete:
            raise IncompleteResponseError(reason=reply.incomplete, text=reply.text)
        return reply

    def _request(self, tools: Iterable[Tool], schema: JSON | None) -> Request:
        prompt = self._facts.system_prompt
        record = self._history.for_request(prompt)
        chosen = record if self._config.select_messages is None else self._config.select_messages(list(record))
        return Request(
            model=self._facts.model,
            system_prompt=prompt,
            messages=paired(self._wire, opened(self._wire, chosen, record)),
            tools=[tool.describe() for tool in tools],
            max_tokens=self._config.max_tokens,
            schema=schema,
        )

    def _streamed_reply(self, body: JSON) -> Generator[StreamEvent, None, Reply]:
        """Receive a streamed reply. On return it is on record. If an error follows the first event, what came is on record too."""
        assembly = self._wire.assembly()
        came: list[JSON] = []
        with closing(self._connection.stream(self._facts.model, body)) as events:
            try:
                for event in events:
                    if not isinstance(event, dict):
                        continue  # some servers send such events to keep the connection alive
                    came.append(event)
                    if text := assembly.add(event):
                        yield TextDelta(text=text)
            except BaseException as error:
                if not came:
                    raise  # the request failed or was given up: there is nothing to record
                reply = _understood(lambda _: assembly.reply(), came)
                if reply.incomplete:
                    reply = replace(reply, incomplete=f"the stream was cut ({type(error).__name__})")
                self._keep(reply)
                if not isinstance(error, Exception):
                    raise  # Ctrl-C, or the caller closed the iterator: it did not ask for an answer any more
                if reply.incomplete:
                    raise IncompleteResponseError(reason=reply.incomplete, text=reply.text) from error
                return reply  # the stop reason had come, so the reply is whole
        reply = _understood(lambda _: assembly.reply(), came)
        self._keep(reply)
        return reply

    def _keep(self, reply: Reply) -> None:
        """Record a reply: its message, or a record without a message if nothing of the reply can be sent again."""
        first: JSON | None = None
        for extra in self._extras(reply):
            first = extra if first is None else first
            try:
                if reply.message is not None:
                    self._history.append(reply.message, extra)
                else:
                    self._history.note(extra)
                break
            except InvalidMessageError as error:
                refused = error
        else:
            # The reply has a lone surrogate or an integer beyond 64 bits, or is longer than a line may be. It is kept as text.
            # A quarter of a line leaves room for the escapes.
            cut = json.dumps([reply.message, first])[: self._history.max_bytes // 4]
            partial = _PIECES if self._history.redacts else cut
            self._history.note({"incomplete": {"reason": str(refused), "partial": partial}})
            raise refused
        took = tokens_in(reply.extra.get("usage") or {})
        self.usage = Usage(
            input_tokens=self.usage.input_tokens + (took.input or 0),
            output_tokens=self.usage.output_tokens + (took.output or 0),
        )

    def _extras(self, reply: Reply) -> Iterator[JSON]:
        """What may be recorded beside a reply, the most telling first. The record may refuse it for what came of the rest."""
        if not reply.incomplete:
            yield reply.extra
            return
        refused = {"refused": {"status": None, "reason": reply.incomplete}} if reply.is_refusal else {}
        for partial in self._partials(reply.raw):
            yield {**reply.extra, **refused, "incomplete": {"reason": reply.incomplete, "partial": partial}}

    def _partials(self, raw: Any) -> Iterator[Any]:
        redacts = self._history.redacts
        # Events that were not understood are in pieces, and a secret that is cut in two has no form.
        yield _PIECES if redacts and isinstance(raw, list) else raw
        # The message repeats most of it, and both together may be too long. The ends have what is not in the message.
        text, eighth = json.dumps(raw), self._history.max_bytes // 8
        ends = text if len(text) <= 2 * eighth else f"{text[:eighth]} … {text[-eighth:]}"
        yield _PIECES if redacts else ends
        yield ""


def _understood(read: Callable[[Any], Reply], raw: Any) -> Reply:
    """The reply that ``read`` makes of ``raw``. If ``raw`` is not in the provider's form, an incomplete reply that keeps it."""
    try:
        return read(raw)
    except (AttributeError, LookupError, TypeError, ValueError, RecursionError) as error:
        reason = f"the response is not in the provider's form ({type(error).__name__})"
        return Reply(message=None, text="", stop_reason=None, extra={}, incomplete=reason, raw=raw)
