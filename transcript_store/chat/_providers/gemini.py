"""Gemini: ``generateContent``, through the ``google-genai`` SDK.

A message is a *content*: ``{"role", "parts"}``. Tool calls are ``functionCall`` parts of a reply, often without an id. All their
results are ``functionResponse`` parts of the one user content that follows. The system prompt is the body's
``systemInstruction``. A ``thoughtSignature`` must be sent back with the part that it came with.

The service writes names in camelCase. Histories of other tools may have them in snake_case. They are sent unchanged, because
the service reads both.

Sources: https://ai.google.dev/api/generate-content, and google-genai 3.4.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from typing import Any

from transcript_store.chat._config import host_of, is_loopback
from transcript_store.chat._provider import (
    JSON,
    Assembly,
    Message,
    Reply,
    Request,
    ToolCall,
    ToolResult,
    about_reply,
    join_text,
    refusal_by,
    without_nulls,
)

_BLOCKED = frozenset(
    {
        "SAFETY",
        "RECITATION",
        "LANGUAGE",
        "BLOCKLIST",
        "PROHIBITED_CONTENT",
        "SPII",
        "MALFORMED_FUNCTION_CALL",
        "UNEXPECTED_TOOL_CALL",
        "TOO_MANY_TOOL_CALLS",
        "MISSING_THOUGHT_SIGNATURE",
        "MALFORMED_RESPONSE",
        "MODEL_ARMOR",
        "IMAGE_SAFETY",
        "IMAGE_PROHIBITED_CONTENT",
        "IMAGE_RECITATION",
        "IMAGE_OTHER",
        "NO_IMAGE",
        "OTHER",
    }
)
"""The finish reasons of a reply that the service stopped, or that cannot be used. A reason that is not here counts as whole."""

_NOT_ALLOWED = frozenset(
    {
        "SAFETY",
        "BLOCKLIST",
        "PROHIBITED_CONTENT",
        "SPII",
        "MODEL_ARMOR",
        "IMAGE_SAFETY",
        "IMAGE_PROHIBITED_CONTENT",
    }
)
"""Those that are about the question too, if nothing of a reply came."""


class GeminiWire:
    """The generateContent format as a ``Wire``."""

    results_are_messages = False
    has_system_messages = False
    pause_reason: str | None = None
    thinking_members: tuple[str, ...] = ()

    def user_message(self, text: str) -> Message:
        return {"role": "user", "parts": [{"text": text}]}

    def is_reply(self, message: Message) -> bool:
        return message.get("role") == "model"

    def may_open(self, message: Message) -> bool:
        rest = None if self.is_reply(message) else self.without_results(message)
        return rest is not None and _sendable(rest) is not None

    def calls(self, message: Message) -> list[ToolCall]:
        calls = [call for part in _parts(message) if (call := _call(part)) is not None]
        return [ToolCall(id=call.get("id"), name=call.get("name", ""), arguments=_arguments(call)) for call in calls]

    def results(self, message: Message) -> list[ToolResult]:
        return [
            ToolResult(id=response.get("id"), name=response.get("name"), native=part)
            for part in _parts(message)
            if (response := _response(part)) is not None
        ]

    def without_results(self, message: Message) -> Message | None:
        if not self.results(message):
            return message
        rest = [part for part in _parts(message) if _response(part) is None]
        return {**message, "parts": rest} if rest else None

    def result(self, call: ToolCall, text: str, *, is_error: bool) -> JSON:
        response = {"id": call.id, "name": call.name, "response": {"error" if is_error else "output": text}}
        return {"functionResponse": without_nulls(response)}

    def results_message(self, results: Sequence[JSON]) -> Message:
        return {"role": "user", "parts": list(results)}

    def request(self, request: Request, *, stream: bool) -> JSON:  # noqa: ARG002 (it is in the URL)
        body: JSON = {"contents": [sendable for message in request.messages if (sendable := _sendable(message))]}
        if request.system_prompt:
            body["systemInstruction"] = {"parts": [{"text": request.system_prompt}]}
        if request.tools:
            declarations = [
                {"name": tool.name, "description": tool.description, "parametersJsonSchema": tool.parameters}
                for tool in request.tools
            ]
            body["tools"] = [{"functionDeclarations": declarations}]
        config: JSON = {}
        if request.max_tokens is not None:
            config["maxOutputTokens"] = request.max_tokens
        if request.schema is not None:
            config |= {"responseMimeType": "application/json", "responseJsonSchema": request.schema}
        if config:
            body["generationConfig"] = config
        return body

    def reply(self, body: JSON) -> Reply:
        return _reply(body, _candidate(body).get("content") or {}, ended=True)

    def assembly(self) -> Assembly:
        return GeminiAssembly()


class GeminiAssembly:
    """Builds a content from a stream. Each event is a whole response, and the content has the parts of all of them in order."""

    def __init__(self) -> None:
        self._body: JSON = {}
        self._candidate: JSON = {}
        self._content: JSON = {}

    def add(self, event: JSON) -> str:
        self._body.update({name: value for name, value in event.items() if name != "candidates"})
        candidate = _candidate(event)
        self._candidate.update({name: value for name, value in candidate.items() if name != "content"})
        content = candidate.get("content") or {}
        parts = [*_parts(self._content)]
        for part in _parts(content):
            if parts and _goes_on(parts[-1], part):
                parts[-1] = {**parts[-1], "text": join_text(parts[-1]["text"], part["text"])}
            else:
                parts.append(part)
        self._content = {**self._content, **content}
        if parts:
            self._content["parts"] = parts
        return _text(content)

    def reply(self) -> Reply:
        candidates = [{"content": self._content, **self._candidate}] if self._content or self._candidate else []
        return _reply({**self._body, "candidates": candidates}, self._content, ended=False)


def _goes_on(before: JSON, part: JSON) -> bool:
    """True if a part continues the text of the part before it. A part with other members, as a signature, stays separate."""
    return (
        before.keys() == part.keys()
        and part.keys() <= {"text", "thought"}
        and "text" in part
        and before.get("thought") == part.get("thought")
    )


def _reply(body: JSON, content: JSON, *, ended: bool) -> Reply:
    """The reply in a body with this content. With ``ended`` it is whole even without a finish reason."""
    stop_reason = _candidate(body).get("finishReason")
    blocked = (body.get("promptFeedback") or {}).get("blockReason")
    incomplete = None
    if not content and blocked:
        incomplete = f"the prompt was blocked ({blocked})"
    elif stop_reason in _BLOCKED:
        incomplete = f"the reply was blocked ({stop_reason})"
    elif not any(map(_is_answer, _parts(content))):
        thought = any(part.get("thought") for part in _parts(content))
        what = "is nothing but thinking" if thought else "holds no content"
        incomplete = f"the reply {what} ({stop_reason or 'no finish reason'})"
    elif stop_reason is None and not ended:
        incomplete = "the reply ended without a finish reason"
    kept = content if content.get("role") else {**content, "role": "model"}  # some servers give none
    if incomplete:
        kept = {**kept, "parts": [part for part in _parts(content) if _whole(part)]}
    return Reply(
        message=kept if not incomplete or kept["parts"] else None,
        text=_text(kept),
        stop_reason=stop_reason,
        extra=about_reply(body.get("responseId"), body.get("modelVersion"), stop_reason, body.get("usageMetadata")),
        incomplete=incomplete,
        raw=body if incomplete else None,
        is_refusal=bool(incomplete) and not kept["parts"] and bool(blocked or stop_reason in _NOT_ALLOWED),
    )


def _sendable(message: Message) -> Message | None:
    """The message as a request may carry it, or None if nothing of it can be sent.

    A stream often ends with an empty text, which the service refuses in a request, as it does a part without any data. Both are
    left out. An empty text with another member, such as a signature, stays.
    """
    parts = _parts(message)
    kept = [part for part in parts if _says_something(part)]
    if not kept:
        return None
    return message if len(kept) == len(parts) else {**message, "parts": kept}


def _says_something(part: JSON) -> bool:
    return bool(part.get("text")) or any(part[name] is not None for name in part.keys() - {"text", "thought"})


def _is_answer(part: JSON) -> bool:
    """True if a part is more than thinking, its signature and white space."""
    others = part.keys() - {"text", "thought", "thoughtSignature", "thought_signature"}
    return not part.get("thought") and (bool((part.get("text") or "").strip()) or any(part[name] for name in others))


def _whole(part: JSON) -> bool:
    """True if a part of an incomplete reply can be sent again. Thinking needs its signature, and a text must not be empty."""
    if part.get("thought"):
        return bool(part.get("thoughtSignature") or part.get("thought_signature"))
    return _says_something(part)


def _candidate(body: JSON) -> JSON:
    candidate: JSON = (body.get("candidates") or [{}])[0]
    return candidate


def _parts(message: Message) -> list[JSON]:
    return message.get("parts") or []


def _call(part: JSON) -> JSON | None:
    return part.get("functionCall") or part.get("function_call")


def _response(part: JSON) -> JSON | None:
    return part.get("functionResponse") or part.get("function_response")


def _arguments(call: JSON) -> JSON | None:
    arguments = call.get("args")
    return {} if arguments is None else arguments if isinstance(arguments, dict) else None


def _text(message: Message) -> str:
    return "".join(part.get("text") or "" for part in _parts(message) if not part.get("thought"))


class GeminiConnection:
    """A connection through the SDK's API client, which returns each response's JSON unchanged.

    The SDK's typed calls are not used, because they drop the members that they do not know.
    """

    def __init__(self, *, token: str, base_url: str, timeout_seconds: float) -> None:
        import httpx2
        from google import genai
        from google.genai import types

        self._http = httpx2.Client(follow_redirects=False, trust_env=not is_loopback(host_of(base_url)))
        self._client = genai.Client(
            vertexai=False,
            api_key=token,
            http_options=types.HttpOptions(
                base_url=base_url,
                api_version="v1beta",
                timeout=int(timeout_seconds * 1000),
                httpx_client=self._http,
            ),
        )

    def send(self, model: str, body: JSON) -> JSON:
        path = f"{_path(model)}:generateContent"
        response = _retrying(lambda: self._client._api_client.request("post", path, body))
        parsed: JSON = json.loads(response.body)
        return parsed

    def stream(self, model: str, body: JSON) -> Generator[JSON, None, None]:
        path = f"{_path(model)}:streamGenerateContent?alt=sse"

        def begin() -> tuple[Any, Any]:
            responses = self._client._api_client.request_streamed("post", path, body)
            # The SDK's generator sends the request when its first event is asked for. So that is what must be retried.
            return responses, next(responses, None)

        responses, first = _retrying(begin)
        with closing(responses):
            if first is not None:
                yield json.loads(first.body)
            for response in responses:
                yield json.loads(response.body)

    def refusal(self, error: Exception) -> JSON | None:
        code, details = getattr(error, "code", None), str(getattr(error, "details", ""))
        if getattr(error, "status", None) == "FAILED_PRECONDITION" or "API_KEY_INVALID" in details:
            return None  # the account's country, or the key: the service says 400 of these too
        return refusal_by(code, getattr(error, "message", None) or error)

    def close(self) -> None:
        self._client.close()
        self._http.close()


def _path(model: str) -> str:
    return model if model.startswith(("models/", "tunedModels/")) else f"models/{model}"


_ATTEMPTS = 3  # attempts and delays are those of the other two SDKs
_PASSING_STATUS = (408, 409, 429, 500, 502, 503, 504)
_FIRST_DELAY_SECONDS, _LONGEST_DELAY_SECONDS, _LONGEST_RETRY_AFTER_SECONDS = 0.5, 8.0, 60.0


def _retrying(call: Callable[[], Any]) -> Any:
    """Return what ``call()`` returns. Call it again after a transient error, ``_ATTEMPTS`` times in all.

    The SDK's own retries are not used, because they ignore ``Retry-After`` (google-genai 3.4).
    """
    import httpx2
    import tenacity
    from google.genai.errors import APIError

    def is_passing(error: BaseException) -> bool:
        return isinstance(error, httpx2.TransportError) or (
            isinstance(error, APIError) and error.code in _PASSING_STATUS
        )

    def delay(state: Any) -> float:
        error = state.outcome.exception()
        asked = getattr(getattr(error, "response", None), "headers", {}).get("retry-after", "")
        if asked.isdecimal() and int(asked) <= _LONGEST_RETRY_AFTER_SECONDS:
            return float(asked)
        doubled: float = _FIRST_DELAY_SECONDS * 2 ** (state.attempt_number - 1)
        return min(doubled, _LONGEST_DELAY_SECONDS)

    return tenacity.Retrying(
        stop=tenacity.stop_after_attempt(_ATTEMPTS),
        retry=tenacity.retry_if_exception(is_passing),
        wait=delay,
        reraise=True,
    )(call)
