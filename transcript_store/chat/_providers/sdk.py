"""The ``post`` of the SDKs that are made from one generator (anthropic, openai): it gives a body as it came.

Their own methods for messages would re-make it from the SDK's types, and lose what those do not know.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from transcript_store.chat._base_url import host_of, is_loopback
from transcript_store.chat._provider import JSON

_CONNECT_SECONDS = 5.0
"""How long a connection may take to be made: the SDKs' own default, however long a reply may take."""


_NO_PROXY: dict[str, None] = dict.fromkeys(("all://", "http://", "https://"))
"""What stands in the place of the proxies that the environment names; anthropic's HTTP client takes them whatever ``trust_env`` says."""


class PostConnection:
    """A client of such an SDK, at the path of its messages; it satisfies ``Connection``."""

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

    def close(self) -> None:
        self._client.close()


def options(sdk: Any, *, token: str, base_url: str, timeout_seconds: float) -> dict[str, Any]:
    """What a client of such an SDK is made with: neither token nor URL come from the environment, redirects are not followed.

    A proxy that the environment names is not asked for this machine: with ``http`` it would read the token.
    """
    direct = {"trust_env": False, "mounts": _NO_PROXY} if is_loopback(host_of(base_url)) else {}
    return {
        "api_key": token,
        "base_url": base_url,
        "timeout": sdk.Timeout(timeout_seconds, connect=min(timeout_seconds, _CONNECT_SECONDS)),
        "http_client": sdk.DefaultHttpxClient(follow_redirects=False, **direct),
    }
