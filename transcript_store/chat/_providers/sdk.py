"""A connection through the ``post()`` of the anthropic and openai SDKs, which returns a response's JSON unchanged.

The two SDKs come from one generator, so they share this method. Their typed methods would drop the members that they do not
know.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from transcript_store.chat._config import host_of, is_loopback
from transcript_store.chat._provider import JSON, refusal_by

_CONNECT_SECONDS = 5.0
"""How long connecting may take, whatever the timeout of a reply. It is the SDKs' own default."""


_MEMBERS_WITH_MESSAGES = ("messages", "prompt", "input")
"""``prompt`` is Azure's, for its content filter."""

_STATUS_OF_TYPES = {"invalid_request_error": 400, "request_too_large": 413}

_NO_PROXY: dict[str, None] = dict.fromkeys(("all://", "http://", "https://"))
"""Replaces the proxies of the environment. Anthropic's HTTP client uses those even with ``trust_env=False``."""


class PostConnection:
    """A client of one of these SDKs, with the path of its messages, as a ``Connection``."""

    def __init__(self, client: Any, stream_type: type, path: str) -> None:
        self._client = client
        self._stream_type = stream_type
        self._path = path

    def send(self, model: str, body: JSON) -> JSON:  # noqa: ARG002 (it is in the body)
        response: JSON = self._client.post(self._path, cast_to=object, body=body)
        return response

    def stream(self, model: str, body: JSON) -> Generator[JSON, None, None]:  # noqa: ARG002
        with self._client.post(
            self._path, cast_to=object, body=body, stream=True, stream_cls=self._stream_type
        ) as events:
            yield from events

    def refusal(self, error: Exception) -> JSON | None:
        body = getattr(error, "body", None)
        refusal = body.get("error", body) if isinstance(body, dict) else {}
        refusal = refusal if isinstance(refusal, dict) else {}
        about = refusal.get("param")  # OpenAI names the member of the request that it refuses
        if isinstance(about, str) and not about.startswith(_MEMBERS_WITH_MESSAGES):
            return None
        reason = str(refusal.get("message") or error)
        status = getattr(error, "status_code", None)
        if status in (
            None,
            200,
        ):  # the error is an event of a stream: gateways repeat the status in it, Anthropic has a type
            status = refusal.get("code") or _STATUS_OF_TYPES.get(str(refusal.get("type")))
        return refusal_by(status, reason)

    def close(self) -> None:
        self._client.close()


def options(sdk: Any, *, token: str, base_url: str, timeout_seconds: float) -> dict[str, Any]:
    """The arguments of such an SDK's client. Token and URL do not come from the environment. Redirects are not followed.

    Requests to this machine do not go through a proxy of the environment. With ``http`` the proxy could read the token.
    """
    direct = {"trust_env": False, "mounts": _NO_PROXY} if is_loopback(host_of(base_url)) else {}
    return {
        "api_key": token,
        "base_url": base_url,
        "timeout": sdk.Timeout(timeout_seconds, connect=min(timeout_seconds, _CONNECT_SECONDS)),
        "http_client": sdk.DefaultHttpxClient(follow_redirects=False, **direct),
    }
