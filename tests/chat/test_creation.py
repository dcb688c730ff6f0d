"""Creating a client: an error says what is missing and how to get it, and the token is only in the request's header."""

from __future__ import annotations

import io
import json
import logging
import os
import pickle
import re
import shlex
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any, get_args

import pytest

from tests.chat.conftest import connect
from tests.chat.dialects import DIALECTS, Call, Dialect
from tests.chat.server import Answer, Server
from tests.kit.cases import for_each
from transcript_store import ConversationStore, FileStore, chat, errors
from transcript_store._conversation import metadata
from transcript_store.chat import (
    ChatClient,
    ChatConfig,
    PersistentChatClient,
    Provider,
    StreamingChatClient,
    Tool,
    create_client,
    validate_base_url,
)
from transcript_store.errors import (
    IncompleteResponseError,
    InvalidBaseUrlError,
    MaxStepsError,
    MissingExtraError,
    MissingTokenError,
    TranscriptStoreError,
)
from transcript_store.installation import install_command

CANARY = "sk-canary-8d1f00b5"
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}}


def test_no_sdk_is_imported_before_a_client_of_it_is_made() -> None:
    """Importing the package, or listing snapshots, costs nobody an SDK."""
    sdks = {"anthropic", "openai", "google.genai", "pydantic", "httpx2"}
    code = f"import sys, transcript_store.chat, transcript_store.testing; print(*{sdks} & {{*sys.modules}})"
    assert subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout == "\n"


@pytest.mark.parametrize(
    ("provider", "sdk"), [("claude", "anthropic"), ("openai", "openai"), ("gemini", "google.genai")]
)
def test_a_missing_sdk(provider: Any, sdk: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The error says what to install, and no conversation is created by the attempt."""
    monkeypatch.setitem(sys.modules, sdk, None)
    if sdk == "google.genai":
        monkeypatch.delattr("google.genai", raising=False)
    with ConversationStore(tmp_path / "c") as conversation:
        with pytest.raises(MissingExtraError, match=re.escape(install_command(provider))) as caught:
            create_client(ChatConfig(provider=provider, token="t"), conversation=conversation)
        assert not conversation.exists()
    assert isinstance(caught.value, ImportError)
    assert (caught.value.provider, caught.value.extra) == (provider, provider)


@pytest.mark.parametrize(
    ("provider", "variables"),
    [
        ("claude", ("ANTHROPIC_API_KEY",)),
        ("openai", ("OPENAI_API_KEY",)),
        ("openai-compatible", ("OPENAI_API_KEY",)),
        ("gemini", ("GOOGLE_API_KEY", "GEMINI_API_KEY")),
    ],
)
def test_a_missing_token(
    provider: Any, variables: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The error names the variables; an empty one counts for nothing; a callable's answer is not replaced by a variable."""
    monkeypatch.setenv(variables[-1], "")
    base_url = "https://api.some.test/v1"
    with ConversationStore(tmp_path / "c") as conversation:
        for token in (None, "", lambda: " \n"):
            with pytest.raises(MissingTokenError) as caught:
                create_client(ChatConfig(provider=provider, token=token, base_url=base_url), conversation=conversation)
            assert caught.value.variables == variables
            assert all(name in str(caught.value) for name in variables)
        assert not conversation.exists()
    monkeypatch.setenv(variables[0], CANARY)
    with pytest.raises(MissingTokenError):
        create_client(ChatConfig(provider=provider, token=lambda: "", base_url=base_url))


def test_the_token_travels_in_a_header(dialect: Dialect, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Given, from a callable with a line feed at its end, or from the environment; what is given wins."""
    variable = {"claude": "ANTHROPIC_API_KEY", "gemini": "GEMINI_API_KEY"}.get(dialect.name, "OPENAI_API_KEY")
    monkeypatch.setenv(variable, "sk-from-environment")
    for token, sent in ((CANARY, CANARY), (lambda: CANARY + "\n", CANARY), (None, "sk-from-environment")):
        server.answers += [dialect.reply("Yes.")]
        connect(dialect, server, token=token).chat("Hi")
        headers = {name.lower(): value for name, value in server.requests[-1].headers.items()}
        assert headers.get("x-goog-api-key", headers.get("authorization", "").removeprefix("Bearer ")) == sent


@pytest.mark.parametrize("token", ["sk-canary\nX-Evil: 1", "sk-canary-ü", "sk-canary\x00"])
def test_a_token_that_no_header_can_carry(token: str) -> None:
    """The HTTP library would repeat it in its error; ours does not."""
    with pytest.raises(ValueError, match="header") as caught:
        create_client(ChatConfig(provider="claude", token=token))
    assert "canary" not in f"{caught.value!r}"
    assert caught.value.__context__ is None


def test_a_server_on_this_machine_needs_no_token(server: Server) -> None:
    """Ollama, vLLM, llama.cpp: a compatible server on a loopback address; one elsewhere does."""
    dialect = DIALECTS["openai-compatible"]
    server.answers += [dialect.reply("Yes.")]
    assert connect(dialect, server, token=None).chat("Hi") == "Yes."
    with pytest.raises(MissingTokenError):
        create_client(ChatConfig(provider="openai-compatible", base_url="https://10.0.0.1/"))


def test_the_token_is_nowhere(
    dialect: Dialect, server: Server, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not in a transcript, a snapshot, its store, a repr, an error, or a log at DEBUG, nor is a handler's memory."""
    log = io.StringIO()
    monkeypatch.setattr(logging.root, "handlers", [logging.StreamHandler(log)])
    loggers = [logging.root, *map(logging.getLogger, list(logging.root.manager.loggerDict))]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.DEBUG)
    shown: list[str] = []

    def add(a: int, b: int, secret: str = CANARY) -> int:
        return a + b + len(secret)

    server.answers += [
        dialect.stream("I add.", (("add", {"a": 1, "b": 2}),)),
        Answer(b'{"error": {"message": "no"}}', status=401),
        dialect.stream("Half", stop=False),
    ]
    config = ChatConfig(provider=dialect.provider, token=CANARY, base_url=server.url)  # type: ignore[arg-type]
    with ConversationStore(tmp_path / "c") as conversation:
        client = connect(dialect, server, conversation, token=CANARY)
        client.set_tools([Tool("add", "Add.", SCHEMA, handler=add)])
        for _ in range(2):
            try:
                list(client.stream_chat("Go"))
            except Exception as error:
                shown += [str(error), repr(error)]
        snapshot = client.save()
        FileStore(tmp_path / "snapshots").save(snapshot)
        shown += [repr(config), str(config), repr(client), repr(snapshot), repr(conversation.get_metadata())]
    for logger, level in zip(loggers, levels, strict=True):
        logger.setLevel(level)
    assert len(shown) == 9
    written = [path.read_bytes().decode() for path in tmp_path.rglob("*") if path.is_file()]
    assert len(written) >= 4
    captured = capfd.readouterr()
    for text in [*shown, *written, log.getvalue(), captured.out, captured.err]:
        assert CANARY not in text
    assert "HTTP" in log.getvalue()
    assert any(CANARY in str(request.headers) for request in server.requests)


def test_where_gemini_is_asked(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """The SDK's own variables (another service, another version) change nothing; a model may come with its folder."""
    monkeypatch.setenv("GOOGLE_GENAI_USE_VERTEXAI", "true")
    monkeypatch.setenv("GOOGLE_CLOUD_PROJECT", "p")
    monkeypatch.setenv("GOOGLE_GENAI_API_VERSION", "v9")
    dialect = DIALECTS["gemini"]
    for model, path in (("m", "models/m"), ("models/m", "models/m"), ("tunedModels/t", "tunedModels/t")):
        server.answers += [dialect.reply("Yes."), dialect.stream("Yes.")]
        client = connect(dialect, server, model=model)
        client.chat("Go")
        list(client.stream_chat("Go"))
        assert [request.path for request in server.requests[-2:]] == [
            f"/v1beta/{path}:generateContent",
            f"/v1beta/{path}:streamGenerateContent?alt=sse",
        ]


@pytest.mark.parametrize("name", ["claude", "openai"])
def test_a_connection_is_made_soon_or_not_at_all(name: str, server: Server) -> None:
    """However long a reply may take, a server that cannot be reached is known after seconds, as the SDKs have it."""
    for given, connect_seconds in ((600.0, 5.0), (1.0, 1.0)):
        client = connect(DIALECTS[name], server, timeout_seconds=given)
        timeout = client._requests._connection._client.timeout  # the SDK's: it asks a server only when one is too late
        assert (timeout.read, timeout.connect) == (given, connect_seconds)


def test_capabilities_are_discovered(dialect: Dialect, server: Server) -> None:
    """Ours have all three."""
    client = connect(dialect, server)
    for protocol in (ChatClient, StreamingChatClient, PersistentChatClient):
        assert isinstance(client, protocol)


@for_each(
    "wrong",
    [
        {"provider": "claud"},
        {"max_steps": 0},
        {"max_steps": True},
        {"max_tokens": 0},
        {"timeout_seconds": 0},
        {"timeout_seconds": float("nan")},
    ],
)
def test_a_configuration_that_cannot_be(wrong: dict[str, Any]) -> None:
    """Refused when it is made, not in the middle of a turn."""
    with pytest.raises(ValueError, match=next(iter(wrong))):
        ChatConfig(**{"provider": "claude", **wrong})


@for_each("name", ["model", "base_url", "token", "timeout_seconds"])
def test_a_configuration_of_another_type(name: str) -> None:
    """A ``TypeError`` that names the field, and not what was in it, which may be a token."""
    with pytest.raises(TypeError, match=f"{name} must be .*, not bytes"):
        ChatConfig(**{"provider": "claude", name: b"sk-secret"})  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="a base URL is a str, not NoneType"):
        validate_base_url(None)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="config must be a ChatConfig, not str"):
        create_client("claude")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="conversation must be a ConversationStore, not str"):
        create_client(ChatConfig(provider="claude", token="t"), conversation="agent/main")  # type: ignore[arg-type]


def test_two_tools_of_one_name(dialect: Dialect, server: Server) -> None:
    """The model could not say which."""
    client = connect(dialect, server)
    with pytest.raises(ValueError, match="same name"):
        client.set_tools([Tool("a", "", SCHEMA, handler=int), Tool("a", "", SCHEMA, handler=int)])


def test_results_that_are_not_text(dialect: Dialect, server: Server) -> None:
    """JSON values are sent as JSON; what JSON cannot say is an error result; a file name that is not UTF-8 is escaped."""
    calls: tuple[Call, ...] = (("json", {}), ("set", {}), ("bytes", {}))
    tools = [
        Tool("json", "", {"type": "object"}, handler=lambda: {"é": [1, None]}),
        Tool("set", "", {"type": "object"}, handler=lambda: {1}),
        Tool("bytes", "", {"type": "object"}, handler=lambda: os.fsdecode(b"caf\xe9")),
    ]
    server.answers += [dialect.reply("", calls), dialect.reply("Yes.")]
    client = connect(dialect, server)
    client.set_tools(tools)
    client.chat("Go")
    told = json.dumps(server.bodies[1], ensure_ascii=False)
    assert json.dumps('{"é": [1, null]}', ensure_ascii=False) in told
    assert "TypeError: Object of type set is not JSON serializable" in told
    assert r"caf\\udce9" in told


def test_every_error_survives_pickling() -> None:
    """As all errors of the package do."""
    for error in (
        MissingExtraError(provider="claude", extra="claude"),
        MissingExtraError(provider="claude-local", extra="claude", program="claude"),
        MissingTokenError(provider="claude", variables=("A",)),
        MaxStepsError(steps=3),
        IncompleteResponseError(reason="r", text="t"),
        InvalidBaseUrlError(reason="r"),
    ):
        again = pickle.loads(pickle.dumps(error))
        assert isinstance(error, TranscriptStoreError)
        assert (type(again), str(again), vars(again)) == (type(error), str(error), vars(error))
        assert type(error).__name__ in (errors.__doc__ or "")


def test_what_is_public_is_listed() -> None:
    """The package's list is complete and sorted, and each name is documented in docs/chat.md."""
    assert sorted(chat.__all__, key=lambda name: (not name.isupper(), name)) == chat.__all__
    document = (Path(__file__).parent.parent.parent / "docs" / "chat.md").read_text()
    assert [name for name in chat.__all__ if f"`{name}" not in document] == []


# ---- claude-local ------------------------------------------------------------------------------------------------------


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A stand-in for the ``claude`` program: notes how it was called, answers as the real one does in print mode."""
    notes = tmp_path / "calls.jsonl"
    script = tmp_path / "bin" / "claude"
    script.parent.mkdir()
    script.write_text(
        f"""#!/bin/sh
'''exec' {shlex.quote(sys.executable)} "$0" "$@"
' '''
import json, os, sys
prompt = sys.stdin.read()
with open({str(notes)!r}, "a") as out:
    names = ("ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL")
    out.write(json.dumps({{"argv": sys.argv[1:], "prompt": prompt, "env": {{n: os.environ.get(n) for n in names}}}}) + "\\n")
if prompt == "fail":
    sys.exit(3)
answer = '{{"ok": true}}' if prompt.startswith("Really?") else "You said " + prompt
print(json.dumps({{"type": "result", "is_error": prompt == "error", "result": answer, "session_id": "s-1",
                  "usage": {{"input_tokens": 7, "output_tokens": 2}}}}))
"""
    )
    script.chmod(stat.S_IRWXU)
    monkeypatch.setenv("PATH", f"{script.parent}{os.pathsep}{os.environ['PATH']}")
    return notes


def test_claude_local_talks_to_the_program_and_keeps_nothing(program: Path) -> None:
    """It is a ``ChatClient`` and not a ``PersistentChatClient``; the program's own record is what goes on."""
    config = ChatConfig(provider="claude-local", system_prompt="Be brief.", model="m", token=CANARY)
    client = create_client(config)
    assert isinstance(client, ChatClient)
    assert not isinstance(client, PersistentChatClient)
    assert not isinstance(client, StreamingChatClient)
    client.add("First of all")
    assert client.chat("hello") == "You said First of all\n\nhello"
    assert client.ask("Really?", {"type": "object"}) == {"ok": True}
    assert (client.usage.input_tokens, client.usage.output_tokens) == (14, 4)
    first, second = [json.loads(line) for line in program.read_text().splitlines()]
    assert first["argv"][:3] == ["--print", "--output-format", "json"]
    assert "--resume" not in first["argv"]
    assert second["argv"][-2:] == ["--resume", "s-1"]
    assert first["argv"].count("Be brief.") == 1
    assert first["env"]["ANTHROPIC_API_KEY"] == CANARY
    assert CANARY not in str(first["argv"]) + repr(client)


@pytest.mark.parametrize("given", ["argument", "environment"])
def test_claude_local_says_where_it_sends(
    given: str, program: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """One INFO line with the host alone, as for the other providers; without a base URL the program has its own."""
    url = "https://gateway.test:8443/v1/canary?key=canary"
    if given == "environment":
        monkeypatch.setenv("ANTHROPIC_BASE_URL", url)
    with caplog.at_level(logging.INFO, "transcript_store"):
        create_client(ChatConfig(provider="claude-local", base_url=url if given == "argument" else None))
        assert [record.getMessage() for record in caplog.records] == ["claude-local: requests go to gateway.test"]
        caplog.clear()
        monkeypatch.delenv("ANTHROPIC_BASE_URL", raising=False)
        create_client(ChatConfig(provider="claude-local"))
    assert caplog.records == []


def test_claude_local_fails_as_the_program_does(program: Path) -> None:
    """An error that it reports is ours; an exit status is ``CalledProcessError``; what was not said yet stays unsaid."""
    client = create_client(ChatConfig(provider="claude-local"))
    with pytest.raises(IncompleteResponseError) as caught:
        client.chat("error")
    assert caught.value.text == "You said error"
    with pytest.raises(subprocess.CalledProcessError):
        client.chat("fail")
    client.set_tools([])
    with pytest.raises(ValueError, match="own tools"):
        client.set_tools([Tool("a", "", SCHEMA, handler=int)])
    with pytest.raises(IncompleteResponseError, match="not JSON"):
        client.ask("In prose?", {})


def test_claude_local_takes_no_history(program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing to record into and nothing to begin with; its base URL passes the same rules."""
    with pytest.raises(ValueError, match="keeps its history"):
        create_client(ChatConfig(provider="claude-local"), conversation=ConversationStore(tmp_path / "c"))
    with pytest.raises(ValueError, match="keeps its history"):
        create_client(ChatConfig(provider="claude-local", initial_history=[{"role": "user", "content": "x"}]))
    monkeypatch.setenv("ANTHROPIC_BASE_URL", "http://elsewhere.test/")
    with pytest.raises(InvalidBaseUrlError):
        create_client(ChatConfig(provider="claude-local"))
    monkeypatch.delenv("ANTHROPIC_BASE_URL")
    create_client(ChatConfig(provider="claude-local", base_url="https://gateway.test/")).chat("hello")
    assert json.loads(program.read_text())["env"]["ANTHROPIC_BASE_URL"] == "https://gateway.test/"
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MissingExtraError, match="program 'claude'"):
        create_client(ChatConfig(provider="claude-local"))


def test_the_core_knows_the_names_of_all_providers() -> None:
    """A conversation with a name that is none of them is warned of when it is created; the clients know no other."""
    assert set(get_args(Provider)) == set(metadata.PROVIDERS)
