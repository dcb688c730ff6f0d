"""Choose the provider of a conversation, with a reason.

The first of these that applies:

1. the provider that ``--provider`` names;
2. the provider on record: no other one ever takes its place;
3. a compatible server, if its URL is given;
4. the first provider whose key is in the environment and whose SDK is installed;
5. a model server that runs on this machine;
6. the small local model.

A provider that was skipped because something is not installed is named with the reason.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException
from threading import Thread
from typing import Any, cast

from transcript_store import ConversationMetadata, InvalidBaseUrlError, MissingExtraError, MissingTokenError
from transcript_store.chat import PROVIDERS, Provider, host_of, is_loopback, validate_base_url
from transcript_store.cli._shared.forks import LOCAL, wire_of
from transcript_store.cli._shared.terminal import Misuse
from transcript_store.cli.chat.local import MODELS
from transcript_store.installation import install_command
from transcript_store.messages import provider_family

# ---- servers ----
#
# Find the model servers that run on this machine, at their default ports.
#
# A server counts if it answers ``/v1/models`` as OpenAI's does. That answer does not say how large a model is, whether it
# only embeds texts, or whether it runs in a cloud. Each server has its own endpoint for that: Ollama's ``/api/tags``,
# LM Studio's ``/api/v0/models``, the member ``meta`` of llama.cpp.
#
# Only 127.0.0.1 is asked, and without a key. A port without a listener refuses at once, so asking costs nothing.
#
# https://github.com/ollama/ollama/blob/main/docs/api.md, https://lmstudio.ai/docs/app/api/endpoints/rest

USUAL_PORTS = {11434: "Ollama", 1234: "LM Studio", 8080: "llama.cpp"}
"""The ports to search for a server, in this order."""

PATIENCE_SECONDS = 1.0
"""How long the whole search may take. A server that answers later is not found."""
_MOST_BYTES = 4 << 20

_SAYS_NOTHING = re.compile(
    r"embed|rerank|bert|minilm|\b(bge|gte|e5)\b|whisper|\btts\b|diffusion|\bflux\b|guard", re.IGNORECASE
)
"""Found in the name of a model that cannot chat."""
_SIZE = re.compile(r"(?<![a-z0-9.])(?:(\d+)x|e)?(\d+(?:\.\d+)?)([bm])(?![a-z0-9])", re.IGNORECASE)
"""The size in a model's name: 0.6b, 270M, 8x7b, e4b."""


@dataclass(frozen=True, slots=True)
class Server:
    """A server and the names of its chat models, the largest first."""

    name: str
    port: int
    models: tuple[str, ...]

    @property
    def base_url(self) -> str:
        """The base URL for an OpenAI-compatible client."""
        return f"http://127.0.0.1:{self.port}/v1"

    def model_named(self, name: str) -> str | None:
        """The server's name for a model; None if it does not have it. Ollama adds ``:latest`` to a name without a tag."""
        return next((model for model in self.models if model in (name, f"{name}:latest")), None)


def find_servers(ports: Iterable[int] = tuple(USUAL_PORTS)) -> list[Server]:
    """The servers that answer at these ports and have a chat model, in the order of the ports."""
    asked, found = list(ports), dict[int, Server]()
    # Daemon threads, joined only until then: a server that accepts a connection and never answers delays neither this
    # search nor the end of the process.
    looks = [Thread(target=_look, args=(port, found), daemon=True) for port in asked]
    until = time.monotonic() + PATIENCE_SECONDS
    for look in looks:
        look.start()
    for look in looks:
        look.join(max(0.0, until - time.monotonic()))
    return [found[port] for port in asked if port in found]


def _look(port: int, found: dict[int, Server]) -> None:
    listed = _listed(port, "/v1/models", "data")
    names = [model["id"] for model in listed if isinstance(model.get("id"), str)]
    if not names:
        return
    facts: dict[str, dict[str, Any]] = {}
    for model in (*listed, *_listed(port, "/api/tags", "models"), *_listed(port, "/api/v0/models", "data")):
        facts.setdefault(str(model.get("id") or model.get("name")), {}).update(model)
    if models := _chat_models(names, facts):
        found[port] = Server(USUAL_PORTS.get(port, "a server"), port, models)


def _listed(port: int, path: str, member: str) -> list[dict[str, Any]]:
    """The list of objects in the answer of a server. Empty if there is no such server, path or member."""
    connection = HTTPConnection("127.0.0.1", port, timeout=PATIENCE_SECONDS)
    with suppress(OSError, HTTPException, ValueError, RecursionError):
        try:
            connection.request("GET", path)
            response = connection.getresponse()
            given = json.loads(response.read(_MOST_BYTES)) if response.status == 200 else None
        finally:
            connection.close()
        if isinstance(given, dict) and isinstance(given.get(member), list):
            return [entry for entry in given[member] if isinstance(entry, dict)]
    return []


def _chat_models(names: Sequence[str], facts: dict[str, dict[str, Any]]) -> tuple[str, ...]:
    chat = [name for name in names if _talks_here(name, facts.get(name, {}))]
    return tuple(sorted(chat, key=lambda name: _how_large(name, facts.get(name, {})), reverse=True))


def _talks_here(name: str, facts: dict[str, Any]) -> bool:
    details = facts.get("details")
    family = str(details.get("family")) if isinstance(details, dict) else ""
    elsewhere = bool(facts.get("remote_host")) or name.endswith("cloud")  # Ollama lists models of its cloud too
    return not (elsewhere or facts.get("type") == "embeddings" or _SAYS_NOTHING.search(f"{name} {family}"))


def _how_large(name: str, facts: dict[str, Any]) -> tuple[float, float]:
    """The number of parameters, as the server says or as in the name, and the size in bytes. 0 if unknown."""
    details, meta = (given if isinstance(given := facts.get(member), dict) else {} for member in ("details", "meta"))
    parameters = meta.get("n_params")
    spelled = str(details.get("parameter_size") or "")
    sizes = [
        float(n) * int(times or 1) * {"b": 1e9, "m": 1e6}[unit.lower()]
        for times, n, unit in _SIZE.findall(spelled or name)
    ]
    size = facts.get("size") or meta.get("size")
    return (
        float(parameters) if isinstance(parameters, int | float) else max(sizes, default=0.0),
        float(size) if isinstance(size, int | float) else 0.0,
    )


# ---- provider ----

COMPATIBLE = "openai-compatible"
NAMES = (*PROVIDERS, LOCAL)
_WITH_KEYS = tuple(name for name in PROVIDERS if name != COMPATIBLE)
_NO_TOKEN = "none"  # noqa: S105 (the SDK wants a token; given this one, it does not send the environment's key)


class OtherFormError(Misuse):
    """The user named another provider than the conversation's, with another form of messages."""

    def __init__(self, recorded: str, name: str) -> None:
        super().__init__(
            f"the conversation is with {recorded}, and {name} cannot continue it; `transcript-store fork CONVERSATION --provider {name}` "
            f"makes a copy that it can continue, `transcript-store chat --new --provider {name}` starts another one"
        )
        self.provider = name


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """The chosen provider, its model, and how to reach it.

    ``provider`` is the recorded name; the local model is recorded as a compatible server, and has ``is_local``.
    If ``token`` is None, the token comes from the provider's environment variable. ``why`` and ``passed_over`` are
    sentences for a person.
    """

    provider: Provider
    is_local: bool = False
    model: str
    base_url: str | None = None
    allow_insecure: bool = False
    token: str | None = None
    server: str | None = None
    why: str
    passed_over: tuple[str, ...] = ()

    @property
    def called(self) -> str:
        """The name of the model or server, for a sentence."""
        if self.is_local:
            return "the local model"
        if self.server is not None:
            return self.server
        return self.provider if self.base_url is None else f"{self.provider} at {host_of(self.base_url)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Named:
    """The name of a provider, and why it was chosen. ``servers`` are those found on this machine, if they were looked for."""

    name: str
    why: str
    passed_over: tuple[str, ...] = ()
    servers: Sequence[Server] = ()


def choose(
    *,
    named: str | None,
    model: str | None,
    base_url: str | None,
    allow_insecure: bool,
    metadata: ConversationMetadata | None,
    environment: Mapping[str, str] = os.environ,
    servers: Callable[[], Sequence[Server]] = find_servers,
    is_installed: Callable[[str], bool] | None = None,
) -> Choice:
    """Choose the provider for this conversation.

    On return its SDK is installed, its key is in the environment if it needs one, and its URL is allowed. No provider was
    contacted.

    Args:
        named: the provider that the user named, or None.
        model: the model that the user named, or None.
        base_url: the URL that the user gave, or None.
        allow_insecure: whether the user allowed http.
        metadata: what is on record; None for a new conversation.
        environment: the environment variables.
        servers: finds the model servers on this machine. Called only if one of them would be chosen.
        is_installed: whether what a provider needs is installed.

    Raises:
        Misuse: the arguments contradict each other or the record; the sentence says what to change.
        MissingExtraError: the SDK of the provider is not installed.
        MissingTokenError: the environment has no key for the provider.
        InvalidBaseUrlError: no key may be sent to this URL.
    """
    is_installed = is_installed or _is_installed
    recorded = _recorded(metadata)
    chosen = _named(named, recorded, base_url, environment, servers, is_installed)
    name = chosen.name
    if recorded is not None and provider_family(wire_of(name)) != provider_family(wire_of(recorded)):
        raise OtherFormError(recorded, name)
    if not is_installed(name):
        raise MissingExtraError(provider=name, extra=LOCAL if name == LOCAL else PROVIDERS[name].extra)
    kept = metadata.model if metadata is not None and name == recorded else None
    if name == LOCAL:
        if base_url is not None or model not in (None, *MODELS):
            known = " and ".join(MODELS)
            raise Misuse(f"provider {LOCAL} has its own server, and the models {known}; --provider names another one")
        return Choice(
            provider=cast("Provider", COMPATIBLE),
            is_local=True,
            model=model or kept or next(iter(MODELS)),
            why=chosen.why,
            passed_over=chosen.passed_over,
        )
    provider = PROVIDERS[name]
    if name != COMPATIBLE and not any(environment.get(variable) for variable in provider.token_variables):
        raise MissingTokenError(provider=name, variables=provider.token_variables)
    url = base_url or environment.get(provider.base_url_variable)
    if name == COMPATIBLE and url is None:
        server, its_model = _on_this_machine(chosen.servers or servers(), model or kept)
        return Choice(
            provider=cast("Provider", name),
            model=its_model,
            base_url=server.base_url,
            allow_insecure=True,
            token=_NO_TOKEN,
            server=server.name,
            why=f"{server.name} runs on this machine, at port {server.port}",
            passed_over=chosen.passed_over,
        )
    return Choice(
        provider=cast("Provider", name),
        model=model or kept or provider.default_model,
        base_url=_checked_url(url, allow_insecure),
        allow_insecure=allow_insecure,
        why=chosen.why,
        passed_over=chosen.passed_over,
    )


def _recorded(metadata: ConversationMetadata | None) -> str | None:
    """The provider on record, or None. The local model is on record as a compatible server: its model's name tells it."""
    if metadata is None or metadata.provider is None:
        return None
    if provider_family(metadata.provider) == provider_family(COMPATIBLE) and metadata.model in MODELS:
        return LOCAL
    return metadata.provider


def _named(
    named: str | None,
    recorded: str | None,
    base_url: str | None,
    environment: Mapping[str, str],
    servers: Callable[[], Sequence[Server]],
    is_installed: Callable[[str], bool],
) -> _Named:
    if named is not None:
        return _Named(name=named, why="--provider names it")
    if recorded is not None:
        if recorded not in NAMES:
            raise Misuse(
                f"the conversation is with provider {recorded!r}, which chat does not support; it was not changed"
            )
        if recorded == LOCAL and base_url is not None:
            # Both have the same form of messages, and the local model takes no URL: the user means a compatible server.
            return _Named(name=COMPATIBLE, why="--base-url is given")
        return _Named(name=recorded, why="the conversation's provider")
    if base_url is not None:
        return _Named(name=COMPATIBLE, why="--base-url is given")
    passed_over: list[str] = []
    skipped: list[str] = []
    for name in _WITH_KEYS:
        variable = next((each for each in PROVIDERS[name].token_variables if environment.get(each)), None)
        if variable is None:
            continue
        if is_installed(name):
            return _Named(name=name, why=f"{variable} is set", passed_over=tuple(passed_over))
        skipped.append(name)
        passed_over.append(
            f"{variable} is set, but the SDK of {name} is not installed: {install_command(PROVIDERS[name].extra)}"
        )
    if running := servers():
        if is_installed(COMPATIBLE):
            return _Named(name=COMPATIBLE, why="", passed_over=tuple(passed_over), servers=running)
        extra = PROVIDERS[COMPATIBLE].extra
        skipped.append(COMPATIBLE)
        passed_over.append(f"{running[0].name} runs here, but its client is not installed: {install_command(extra)}")
    if skipped and not is_installed(LOCAL):  # then the user needs the SDK of the provider whose key is set
        return _Named(name=skipped[0], why="", passed_over=tuple(passed_over), servers=running)
    why = "no other provider is installed" if passed_over else "no provider's key is in the environment"
    return _Named(name=LOCAL, why=why, passed_over=tuple(passed_over))


def _on_this_machine(servers: Sequence[Server], model: str | None) -> tuple[Server, str]:
    """The first server that has this model, and the name that the server has for it.

    If ``model`` is None: the first server and its largest model.
    """
    for server in servers:
        if (its_name := server.models[0] if model is None else server.model_named(model)) is not None:
            return server, its_name
    if not servers:
        raise Misuse(f"provider {COMPATIBLE} needs --base-url: its server is not on record, and none runs here")
    there = "; ".join(f"{server.name} has {', '.join(server.models)}" for server in servers)
    raise Misuse(
        f"no server on this machine has the model {model!r}: {there}; --model names one, --base-url another server"
    )


def _is_installed(name: str) -> bool:
    if name == LOCAL:
        return importlib.util.find_spec("xllamacpp") is not None and PROVIDERS[COMPATIBLE].is_installed
    return PROVIDERS[name].is_installed


def _checked_url(url: str | None, allow_insecure: bool) -> str | None:
    if url is not None:
        validate_base_url(url, allow_insecure=allow_insecure)
        if allow_insecure and not url.startswith("https:") and not is_loopback(host_of(url)):
            raise InvalidBaseUrlError(reason="--allow-insecure-base-url is only for servers on this machine")
    return url
