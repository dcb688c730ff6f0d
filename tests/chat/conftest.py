from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.chat.dialects import DIALECTS, Dialect
from tests.chat.server import Server, serving
from transcript_store import ConversationStore
from transcript_store.chat import ChatConfig, create_client

VARIABLES = (
    "ANTHROPIC_API_KEY",
    "ANTHROPIC_AUTH_TOKEN",
    "ANTHROPIC_BASE_URL",
    "OPENAI_API_KEY",
    "OPENAI_BASE_URL",
    "GOOGLE_API_KEY",
    "GEMINI_API_KEY",
    "GOOGLE_GEMINI_BASE_URL",
)


@pytest.fixture(autouse=True)
def no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test meets a key, or an address, of whoever runs it."""
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(autouse=True, scope="session")
def no_certificates() -> Iterator[None]:
    """The test server speaks http; reading the certificate authorities is most of what a client costs to make."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ssl.SSLContext.load_verify_locations", lambda *_, **__: None)
        yield


@pytest.fixture(params=list(DIALECTS))
def dialect(request: pytest.FixtureRequest) -> Dialect:
    return DIALECTS[request.param]


@pytest.fixture
def server() -> Iterator[Server]:
    with serving() as server:
        yield server
        if (refused := list(filter(None, map(refusal, server.requests)))) and not server.answers:
            pytest.fail(f"the real service would refuse a request: {refused}")


def refusal(request: Any) -> str | None:
    body = request.body
    if "input" in body:  # OpenAI's Responses, which no client of ours speaks
        return None
    if "contents" in body:
        return DIALECTS["gemini"].refusal(body)
    return DIALECTS["claude" if "max_tokens" in body and "/v1/messages" in request.path else "openai"].refusal(body)


_clients: list[Any] = []


@pytest.fixture(autouse=True)
def no_open_connections() -> Iterator[None]:
    yield
    while _clients:
        _clients.pop().close()


def connect(dialect: Dialect, server: Server, conversation: ConversationStore | None = None, **config: Any) -> Any:
    """A client of this provider that speaks to the test server."""
    config = {"token": "sk-test", "base_url": server.url, "timeout_seconds": 10, **config}
    made: Any = create_client(
        ChatConfig(provider=dialect.provider, **config),  # type: ignore[arg-type]
        conversation=conversation,
        allow_insecure_base_url=True,
    )
    _clients.append(made)
    return made
