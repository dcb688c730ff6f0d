"""Find the model servers that run on this machine, at their default ports.

A server counts if it answers ``/v1/models`` as OpenAI's does. That answer does not say how large a model is, whether it
only embeds texts, or whether it runs in a cloud. Each server has a place of its own for that: Ollama's ``/api/tags``,
LM Studio's ``/api/v0/models``, the member ``meta`` of llama.cpp.

Only 127.0.0.1 is asked, and without a key. A port where nobody listens refuses at once, so asking it costs nothing.

https://github.com/ollama/ollama/blob/main/docs/api.md, https://lmstudio.ai/docs/app/api/endpoints/rest
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException
from threading import Thread
from typing import Any

USUAL_PORTS = {11434: "Ollama", 1234: "LM Studio", 8080: "llama.cpp"}
"""The ports at which a server is looked for, in this order."""

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


def find(ports: Iterable[int] = tuple(USUAL_PORTS)) -> list[Server]:
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
    told = meta.get("n_params")
    spelled = str(details.get("parameter_size") or "")
    sizes = [
        float(n) * int(times or 1) * {"b": 1e9, "m": 1e6}[unit.lower()]
        for times, n, unit in _SIZE.findall(spelled or name)
    ]
    size = facts.get("size") or meta.get("size")
    return (
        float(told) if isinstance(told, int | float) else max(sizes, default=0.0),
        float(size) if isinstance(size, int | float) else 0.0,
    )
