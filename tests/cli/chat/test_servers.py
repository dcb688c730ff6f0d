"""Model servers on this machine: which are found, which model answers, and what is not sent to them.

The forms are those that the servers' documentation prints; the models are those that people have.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest

from tests.chat.server import Server, serving
from tests.cli.chat.conftest import OPENAI, said
from tests.cli.helpers import Cli, Result
from transcript_store import ConversationStore
from transcript_store.cli.chat import provider, session
from transcript_store.cli.chat.provider import find_servers


def listed(*names: str, **more: Any) -> dict[str, Any]:
    """A list of models as OpenAI's API gives it."""
    return {"object": "list", "data": [{"id": name, "object": "model", **more} for name in names]}


def ollama(**models: tuple[int, str, str]) -> dict[str, Any]:
    """Ollama's own list: the bytes, the parameters and the family of each model."""
    return {
        "models": [
            {"name": name, "model": name, "size": size, "details": {"parameter_size": parameters, "family": family}}
            for name, (size, parameters, family) in models.items()
        ]
    }


def port_of(server: Server) -> int:
    return int(server.url.rpartition(":")[2])


@pytest.fixture
def other() -> Iterator[Server]:
    with serving() as server:
        yield server


# ---- what is found ---------------------------------------------------------------------------------------------------


def test_ollama_tells_the_sizes_that_its_names_do_not(server: Server) -> None:
    """``llama3.2`` is a name without a size; what only embeds, or runs in somebody's cloud, is left out."""
    sizes = {
        "llama3.2:latest": (2_019_393_189, "3.2B", "llama"),
        "gemma3:270m": (291_554_930, "268.10M", "gemma3"),
        "qwen3:8b-q8_0": (8_900_000_000, "8.2B", "qwen3"),
        "qwen3:8b": (5_225_388_164, "8.2B", "qwen3"),
        "mxbai-large:latest": (669_615_493, "334.09M", "bert"),
        "bge-m3:latest": (1_157_672_605, "566.70M", "qwen3"),
        "gpt-oss:120b-cloud": (384, "120B", "gptoss"),
        "kimi-k2:1t": (384, "1000B", "kimi"),
    }
    server.pages = {"/v1/models": listed(*sizes), "/api/tags": ollama(**sizes)}
    server.pages["/api/tags"]["models"][-1]["remote_host"] = "https://ollama.com:443"
    (found,) = find_servers([port_of(server)])
    assert found.models == ("qwen3:8b-q8_0", "qwen3:8b", "llama3.2:latest", "gemma3:270m")
    assert found.base_url == f"http://127.0.0.1:{port_of(server)}/v1"
    assert found.model_named("llama3.2") == "llama3.2:latest"
    assert found.model_named("llama3") is None


def test_lm_studio_tells_what_only_embeds(server: Server) -> None:
    types = {"qwen2.5-7b-instruct": "llm", "nomic-v1.5": "embeddings", "qwen2-vl-2b-instruct": "vlm"}
    server.pages = {
        "/v1/models": listed(*types),
        "/api/v0/models": {"data": [{"id": name, "type": kind} for name, kind in types.items()]},
    }
    (found,) = find_servers([port_of(server)])
    assert found.models == ("qwen2.5-7b-instruct", "qwen2-vl-2b-instruct")


def test_llama_cpp_serves_one_and_tells_its_parameters(server: Server) -> None:
    server.pages = {"/v1/models": listed("/models/mine.gguf", meta={"n_params": 1_235_814_432, "size": 807_000_000})}
    (found,) = find_servers([port_of(server)])
    assert found.models == ("/models/mine.gguf",)


def test_the_size_is_in_the_name_where_nothing_else_tells_it(server: Server) -> None:
    """In whatever way people write it; a name without one is smaller than any with one."""
    largest_first = (
        "mixtral-8x7b-instruct",
        "Qwen3-30B-A3B-Q4_K_M",
        "gpt-oss:20b",
        "gemma-3n-e4b-it",
        "llama-3.2-3b-instruct",
        "deepseek-r1-distill-qwen-1.5b",
        "smollm2:360m",
        "phi-4",
    )
    server.pages = {"/v1/models": listed(*sorted(largest_first), "text-embedding-nomic-embed-text-v1.5", "whisper-1")}
    (found,) = find_servers([port_of(server)])
    assert found.models == largest_first


@pytest.mark.parametrize(
    "page",
    [
        None,
        b"<!DOCTYPE html>",
        b"[" * 100_000,
        [],
        {"data": "none"},
        {"data": []},
        {"data": [None, {"id": 5}, {}]},
        listed("nomic-embed-text"),
    ],
    ids=str,
)
def test_a_web_application_is_no_model_server(server: Server, page: Any) -> None:
    """A web application on port 8080 is no model server, whatever it answers."""
    server.pages = {"/v1/models": page}
    assert find_servers([port_of(server)]) == []


def test_dead_and_silent_servers_do_not_delay_the_search(monkeypatch: pytest.MonkeyPatch, server: Server) -> None:
    """Neither holds up the one that does answer."""
    monkeypatch.setattr(provider, "PATIENCE_SECONDS", 2.0)
    server.pages = {"/v1/models": listed("a-7b")}
    with socket.create_server(("127.0.0.1", 0)) as silent, socket.create_server(("127.0.0.1", 0)) as closed:
        nobody = closed.getsockname()[1]
        closed.close()
        found = find_servers([silent.getsockname()[1], nobody, port_of(server)])
    assert [each.models for each in found] == [("a-7b",)]


def test_only_this_machine_is_asked_and_without_a_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever proxy the environment names: the ports are asked at 127.0.0.1, at those that are given and no other."""
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://192.0.2.1:3128")
    asked: set[Any] = set()

    class Refused(HTTPConnection):
        def connect(self) -> None:
            asked.add((self.host, self.port))
            raise ConnectionRefusedError

    monkeypatch.setattr(provider, "HTTPConnection", Refused)
    assert find_servers() == []
    assert asked == {("127.0.0.1", 11434), ("127.0.0.1", 1234), ("127.0.0.1", 8080)}


# ---- what answers ----------------------------------------------------------------------------------------------------


class Here:
    """The command on a machine where these servers run."""

    def __init__(self, cli: Cli, *running: Server) -> None:
        self.cli = cli
        self.ports = ",".join(str(port_of(server)) for server in running)

    def __call__(self, *arguments: str, lines: str = "") -> Result:
        return self.cli("chat", *arguments, "--ports", self.ports, stdin=lines.encode())


@pytest.fixture
def here(cli: Cli, server: Server, other: Server, monkeypatch: pytest.MonkeyPatch) -> Here:
    monkeypatch.setattr(session, "find_servers", find_servers)
    return Here(cli, server, other)


def test_a_server_that_runs_answers_with_its_largest_model(
    here: Here, server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the small model, without a key of the environment; and the same command goes on, whatever is larger by then."""
    monkeypatch.setitem(provider.USUAL_PORTS, port_of(server), "Ollama")
    server.pages = {"/v1/models": listed("llama3.2:1b", "qwen3:14b")}
    server.answers += [OPENAI.stream("Hello."), OPENAI.stream("Again.")]
    path = str(tmp_path / "c")
    result = here(path, lines="hi\n")
    assert (result.code, result.err) == (0, "")
    assert result.out == (
        f"{path}: a new conversation, with openai-compatible qwen3:14b "
        f"(Ollama runs on this machine, at port {port_of(server)})\nHello.\n"
    )
    server.pages = {"/v1/models": listed("gpt-oss:120b", "qwen3:14b")}
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-somebody-else")
    result = here(path, lines="and?\n")
    assert result.out.endswith("Again.\n")
    assert [body["model"] for body in server.bodies] == ["qwen3:14b"] * 2
    assert "sk-of-somebody-else" not in str([request.headers for request in server.requests])
    with ConversationStore(path, read_only=True) as stored:
        stored.load()
        metadata = stored.get_metadata()
    assert (metadata.provider, metadata.model) == ("openai-compatible", "qwen3:14b")


def test_the_model_on_record_is_looked_for_and_never_replaced(
    here: Here, server: Server, other: Server, tmp_path: Path
) -> None:
    """On whichever server it is; if on none, the models that are there are named, and nothing is sent."""
    server.pages = {"/v1/models": listed("qwen3:14b")}
    server.answers += [OPENAI.stream("Hello.")]
    path = str(tmp_path / "c")
    assert here(path, lines="hi\n").code == 0
    server.pages, other.pages = {"/v1/models": listed("llama3:70b")}, {"/v1/models": listed("qwen3:14b")}
    other.answers += [OPENAI.stream("Here I am.")]
    assert here(path, lines="and?\n").out.endswith("Here I am.\n")
    other.pages = {}
    result = here(path, lines="and?\n")
    assert (result.code, result.out) == (2, "")
    assert (
        "no server on this machine has the model 'qwen3:14b': a server has llama3:70b; --model names one" in result.err
    )
    server.answers += [OPENAI.stream("Another one.")]
    assert here(path, "--model", "llama3:70b", lines="and?\n").out.endswith("Another one.\n")
    assert len(said(tmp_path / "c")) == 6


def test_a_key_comes_first_and_nobody_is_asked(
    here: Here, server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def nobody(_ports: Any) -> Any:
        raise AssertionError("asked")

    monkeypatch.setattr(session, "find_servers", nobody)
    monkeypatch.setenv("OPENAI_API_KEY", "sk")
    monkeypatch.setenv("OPENAI_BASE_URL", server.url)
    server.answers += [OPENAI.stream("Hello.")]
    assert "with openai " in here(str(tmp_path / "c"), "--allow-insecure-base-url", lines="hi\n").out


def test_a_named_compatible_provider_needs_no_url_where_a_server_runs(
    here: Here, server: Server, tmp_path: Path
) -> None:
    server.pages = {"/v1/models": listed("a-7b", "a-70b")}
    server.answers += [OPENAI.stream("Hello.")]
    result = here(str(tmp_path / "c"), "--provider", "openai-compatible", "--model", "a-7b", lines="hi\n")
    assert (result.code, server.bodies[0]["model"]) == (0, "a-7b")


@pytest.mark.parametrize("ports", ["x", "0", "65536", "1,,x", "99999999999999999999"])
def test_ports_that_are_none(cli: Cli, ports: str) -> None:
    result = cli("chat", "--ports", ports)
    assert (result.code, "is not a list of ports" in result.err) == (2, True)


def test_a_server_that_ends_between_the_list_and_the_question(here: Here, server: Server, tmp_path: Path) -> None:
    """It fails as any server does: one sentence, and the question is on record."""
    server.pages = {"/v1/models": listed("a-7b")}
    ended = threading.Event()

    def ends() -> Any:
        ended.set()
        raise ConnectionAbortedError

    server.answers += [ends] * 3
    result = here(str(tmp_path / "c"), lines="hi\n")
    assert (result.code, ended.is_set()) == (1, True)
    assert "the connection to a server broke; --retry asks again" in result.err
    assert said(tmp_path / "c") == [("user", "hi")]
