"""Which provider `transcript-store chat` chooses: the named, the recorded, or the first available; and the small local model.

With ``ANTHROPIC_API_KEY`` exported, as many have it, and no SDK installed, the first command of the README once ended with 2, and a
user of Ollama was given a model of 135 million parameters instead of his own.
"""

from __future__ import annotations

import itertools
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.chat.dialects import DIALECTS
from tests.chat.server import Server
from tests.cli.chat.conftest import MODEL, OPENAI, Chat, said
from tests.cli.helpers import Cli, Result, conversation
from transcript_store import ConversationLibrary, ConversationStore, MissingExtraError
from transcript_store.chat import _create
from transcript_store.cli._shared.forks import PROVIDERS
from transcript_store.cli._shared.terminal import Misuse
from transcript_store.cli.chat import answering
from transcript_store.cli.chat import provider as chat_provider
from transcript_store.cli.chat import provider as running_server
from transcript_store.cli.chat.local import QWEN, SMOLLM, Model
from transcript_store.cli.chat.local.server import LocalModelError
from transcript_store.installation import install_command

# ---- which provider --------------------------------------------------------------------------------------------------


def test_the_providers_are_those_that_there_are() -> None:
    assert PROVIDERS == chat_provider.NAMES


@pytest.mark.parametrize(
    ("dialect", "key", "address"),
    [
        ("claude", "ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL"),
        ("openai", "OPENAI_API_KEY", "OPENAI_BASE_URL"),
        ("gemini", "GOOGLE_API_KEY", "GOOGLE_GEMINI_BASE_URL"),
        ("gemini", "GEMINI_API_KEY", "GOOGLE_GEMINI_BASE_URL"),
    ],
)
def test_a_provider_is_chosen_by_its_key(
    cli: Cli, server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dialect: str, key: str, address: str
) -> None:
    """A new conversation takes the first provider whose key is set, says so, and sends the key there and nowhere else."""
    monkeypatch.setenv(key, "sk-the-key")
    monkeypatch.setenv(address, server.url)
    server.answers += [DIALECTS[dialect].stream("Hello.")]
    result = cli("chat", str(tmp_path / "c"), "--allow-insecure-base-url", "--system", "Be brief.", stdin=b"hi\n")
    assert (result.code, result.err) == (0, "")
    assert f"a new conversation, with {dialect} " in result.out
    assert f"({key} is set)\nHello.\n" in result.out
    assert DIALECTS[dialect].system_prompts(server.bodies[0]) == ["Be brief."]
    assert "sk-the-key" in str(server.requests[0].headers)
    assert b"sk-the-key" not in b"".join(path.read_bytes() for path in (tmp_path / "c").iterdir())
    monkeypatch.delenv(key)
    monkeypatch.setenv("ANTHROPIC_API_KEY" if dialect != "claude" else "OPENAI_API_KEY", "another")
    result = cli("chat", str(tmp_path / "c"), "--allow-insecure-base-url", stdin=b"hi\n")
    assert (result.code, result.out) == (2, "")
    assert re.search(rf"provider '{dialect}' needs a token; set .*{key}", result.err)


def test_the_order_of_choice(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Named, else on record, else a compatible server whose URL is given, else the first key, else local."""

    def chosen(metadata: Any = None, *, base_url: str | None = None, **environment: str) -> tuple[str, bool, str]:
        choice = chat_provider.choose(
            named=None,
            model=None,
            base_url=base_url,
            allow_insecure=False,
            metadata=metadata,
            environment=environment,
            servers=list,
        )
        return choice.provider, choice.is_local, choice.model

    numbers = itertools.count()

    def on_record(provider: str | None, model: str) -> Any:
        with ConversationStore(tmp_path / str(next(numbers))) as stored:
            stored.initialize(provider=provider, model=model)
            return stored.get_metadata()

    keys = {"GEMINI_API_KEY": "g", "OPENAI_API_KEY": "o", "ANTHROPIC_API_KEY": "c"}
    assert chosen(**keys)[0] == "claude"
    assert chosen(GEMINI_API_KEY="g", OPENAI_API_KEY="o")[0] == "openai"
    assert chosen(GEMINI_API_KEY="g", ANTHROPIC_API_KEY="")[0] == "gemini"
    assert chosen(**keys, base_url="https://gateway.internal")[0] == "openai-compatible"
    assert chosen() == ("openai-compatible", True, MODEL)
    assert chosen(on_record("gemini", "g-1"), **keys) == ("gemini", False, "g-1")
    assert chosen(on_record("openai-compatible", MODEL), **keys) == ("openai-compatible", True, MODEL)
    assert chosen(on_record("openai", MODEL), **keys) == ("openai-compatible", True, MODEL)
    assert chosen(on_record("openai-compatible", SMOLLM.name), **keys) == ("openai-compatible", True, SMOLLM.name)
    assert chosen(on_record(None, "m"), **keys)[0] == "claude"
    url = "https://gateway.internal"
    assert chosen(on_record("openai-compatible", "q"), base_url=url) == ("openai-compatible", False, "q")
    assert chosen(on_record("openai-compatible", MODEL), base_url=url)[:2] == ("openai-compatible", False)
    with pytest.raises(Misuse, match="needs --base-url"):
        chosen(on_record("openai-compatible", "q"), **keys)
    with pytest.raises(Misuse, match="does not support"):
        chosen(on_record("somebody", "else"), **keys)


def test_another_provider_for_a_conversation(
    cli: Cli, chat: Chat, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that cannot read the messages is misuse. One of the same family goes on, with a model of its own."""
    chat.server.answers += [OPENAI.stream("Hello."), OPENAI.stream("Hello again.")]
    path = conversation(tmp_path / "c", provider="openai-compatible", model=MODEL)
    monkeypatch.setenv("ANTHROPIC_API_KEY", "c")
    result = cli("chat", path, "--provider", "claude", stdin=b"hi\n")
    assert (result.code, result.out) == (2, "")
    assert "the conversation is with local, and claude cannot continue it" in result.err
    monkeypatch.setenv("OPENAI_API_KEY", "o")
    assert "openai gpt-" in chat(path, "--provider", "openai", lines="hi\n").out
    assert chat.server.bodies[-1]["model"].startswith("gpt-")
    assert "with openai o-9 " in chat(path, "--provider", "openai", "--model", "o-9", lines="hi\n").out
    assert chat.server.bodies[-1]["model"] == "o-9"


def test_a_copy_for_another_provider_continues(
    cli: Cli, chat: Chat, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`fork --provider` has the messages in the other form, at their times; `chat` offers it at a terminal, and the original stays."""
    call = {"type": "tool_use", "id": "t1", "name": "weather", "input": {"city": "Rome"}}
    result = {"type": "tool_result", "tool_use_id": "t1", "content": "18 degrees"}
    messages: list[dict[str, Any]] = [
        {"role": "user", "content": "How warm is it?"},
        {"role": "assistant", "content": [call]},
        {"role": "user", "content": [result]},
        {"role": "assistant", "content": "18 degrees."},
    ]
    library = ConversationLibrary(tmp_path / "chats")
    with library.create(
        provider="claude", model="claude-opus-4-8", system_prompt="Be brief.", messages=messages
    ) as one:
        original, records = one.directory, one.get_records()
    made = cli("fork", original, "--provider", "local", "--json")
    with library.open(json.loads(made.out)["id"]) as fork:
        metadata, copied = fork.get_metadata(), fork.get_records()
    assert (metadata.provider, metadata.system_prompt, metadata.model) == ("openai-compatible", "Be brief.", None)
    assert [record.message["role"] for record in copied if record.message] == ["user", "assistant", "tool", "assistant"]
    assert [record.at for record in copied] == [record.at for record in records]
    refused = chat(original, "--provider", "openai-compatible", lines="And now?\n")
    assert (refused.code, "`transcript-store fork CONVERSATION --provider openai-compatible`" in refused.err) == (
        2,
        True,
    )
    monkeypatch.setattr("transcript_store.cli.chat.command.confirmed", lambda _question: True)
    chat.server.answers += [OPENAI.stream("19 degrees.")]
    done = chat(original, "--provider", "openai-compatible", lines="And now?\n")
    assert (done.code, "19 degrees." in done.out, f"{original} is not changed" in done.out) == (0, True, True)
    assert [message["role"] for message in chat.server.bodies[-1]["messages"]][-2:] == ["assistant", "user"]
    with library.open(Path(original).name) as one:
        assert one.get_records() == records


# ---- what is not installed -------------------------------------------------------------------------------------------


@pytest.fixture
def without(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Take modules away, as if they were not installed."""

    def take_away(*modules: str) -> None:
        for module in modules:
            monkeypatch.setitem(sys.modules, module, None)

    return take_away


def test_a_key_whose_sdk_is_not_installed_is_passed_over(
    cli: Cli, server: Server, local: Path, without: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The README's command with ANTHROPIC_API_KEY exported, as many have it, and the extra ``local`` alone: it ended with 2."""
    without("anthropic")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-the-key")
    server.answers += [OPENAI.stream("Hello."), OPENAI.stream("Again.")]
    result = cli("chat", str(local), stdin=b"hi\n")
    assert result.code == 0
    assert result.out == (f"{local}: a new conversation, with local {MODEL} (no other provider is installed)\nHello.\n")
    (line,) = [line for line in result.err.splitlines() if "ANTHROPIC_API_KEY" in line]
    assert line == (
        "transcript-store: ANTHROPIC_API_KEY is set, but the SDK of claude is not installed: "
        + install_command("claude")
    )
    assert "sk-the-key" not in str(server.requests[0].headers) + result.err
    result = cli("chat", str(local), stdin=b"and?\n")  # on record by then: nothing is passed over
    assert (result.code, "ANTHROPIC" in result.err) == (0, False)


def test_the_next_key_counts(
    cli: Cli, server: Server, tmp_path: Path, without: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever is installed, in the same order; a package without its module (google, without genai) is not installed either."""
    without("anthropic", "openai")
    for name in ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY"):
        monkeypatch.setenv(name, "sk")
    monkeypatch.setenv("GOOGLE_GEMINI_BASE_URL", server.url)
    server.answers += [DIALECTS["gemini"].stream("Hello.")]
    result = cli("chat", str(tmp_path / "c"), "--allow-insecure-base-url", stdin=b"hi\n")
    assert (result.code, "with gemini " in result.out) == (0, True)
    assert [line.split(": ")[1] for line in result.err.splitlines()] == [
        "ANTHROPIC_API_KEY is set, but the SDK of claude is not installed",
        "OPENAI_API_KEY is set, but the SDK of openai is not installed",
    ]
    without("google")
    monkeypatch.delitem(sys.modules, "google.genai")
    assert not _create.PROVIDERS["gemini"].is_installed


def test_a_server_that_nothing_installed_can_speak_to(without: Callable[..., None]) -> None:
    """It is passed over as a key is; and if the local model cannot be served either, the error says what to install for the server."""
    without("openai")
    running = [running_server.Server("Ollama", 11434, ("qwen3:14b",))]
    with pytest.raises(MissingExtraError, match=re.escape(install_command("openai"))):
        chosen(servers=lambda: running)
    choice = chosen(servers=lambda: running, is_installed=lambda name: name == "local")
    assert choice.passed_over == ("Ollama runs here, but its client is not installed: " + install_command("openai"),)
    assert (choice.is_local, choice.why) == (True, "no other provider is installed")


def test_a_key_names_the_sdk_to_install_if_nothing_is_installed() -> None:
    """A user who set a key wants that provider: the error does not ask for the local model."""
    with pytest.raises(MissingExtraError, match=re.escape(install_command("claude"))):
        chosen(environment={"ANTHROPIC_API_KEY": "sk"}, is_installed=lambda _name: False)


@pytest.mark.parametrize(
    ("arguments", "module", "extra"),
    [
        (("--provider", "claude"), "anthropic", "claude"),
        (("--provider", "openai"), "openai", "openai"),
        (("--base-url", "https://gateway.internal"), "openai", "openai"),
        (("--provider", "gemini"), "google.genai", "gemini"),
        (("--provider", "local"), "xllamacpp", "local"),
        ((), "xllamacpp", "local"),
    ],
)
def test_a_missing_sdk_is_reported_first(
    cli: Cli,
    home: Path,
    without: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
    arguments: tuple[str, ...],
    module: str,
    extra: str,
) -> None:
    """It was said behind the first question, and behind a download of 98 MB. Nothing is asked, fetched or created."""
    without(module)
    for name in ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY") if arguments else ():
        monkeypatch.setenv(name, "sk")
    for stdin in (b"", b"hi\n"):
        result = cli("chat", *arguments, stdin=stdin)
        assert (result.code, result.out) == (1, "")
        assert install_command(extra) in result.err
        assert not home.exists()


def chosen(**given: Any) -> chat_provider.Choice:
    """The choice for a new conversation, without a key in the environment and a server on the machine."""
    nothing: dict[str, Any] = {
        "named": None,
        "model": None,
        "base_url": None,
        "allow_insecure": False,
        "metadata": None,
    }
    return chat_provider.choose(**nothing | {"environment": {}, "servers": list} | given)


# ---- the local model -------------------------------------------------------------------------------------------------


def test_local_is_a_compatible_server(cli: Cli, server: Server, local: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its token is its own, never a key of the environment; on record it is what it is to a client; fetching is told of."""
    monkeypatch.setenv("OPENAI_API_KEY", "sk-the-key")
    server.answers += [OPENAI.stream("Hello.")]
    result = cli("chat", str(local), "--provider", "local", stdin=b"hi\n")
    assert result == Result(
        0,
        f"{local}: a new conversation, with local {MODEL} (--provider names it)\nHello.\n",
        f"transcript-store: fetching {MODEL} (491 MB, once) …\n"
        f"transcript-store: {MODEL} is a small model that runs on this machine: it has no tools, and it is often wrong\n",
    )
    assert "sk-the-key" not in str(server.requests[0].headers)
    assert "local-token" in str(server.requests[0].headers)
    assert server.bodies[0]["max_tokens"] == 256
    with ConversationStore(local, read_only=True) as stored:
        stored.load()
        metadata = stored.get_metadata()
    assert (metadata.provider, metadata.model) == ("openai-compatible", MODEL)


def test_a_history_that_does_not_fit(cli: Cli, server: Server, local: Path) -> None:
    """The request carries the newest turns that fit, the user is told, the log stays whole; so after a message too long."""
    with ConversationStore(local) as stored:
        stored.initialize(provider="openai-compatible", model=MODEL)
        for number in range(10):
            long = [{"role": role, "content": f"{number} " + "word " * 899} for role in ("user", "assistant")]
            stored.append_messages(long)
    server.answers += [OPENAI.stream("Hello."), OPENAI.stream("Again.")]
    result = cli("chat", str(local), "--system", "word " * 900, stdin=b"How are you?\n")
    assert (result.code, result.out.splitlines()[1:]) == (0, ["Hello."])
    assert "the model gets the last 7 of 21 messages; all of them stay on record" in result.err
    assert [message["content"].split()[0] for message in OPENAI.messages(server.bodies[0])] == [*"778899", "How"]
    too_long = cli("chat", str(local), stdin=b"word " * 8000)
    assert too_long.code == 1
    assert "this message is longer than the local model's context of 8,192 tokens; it is on record" in too_long.err
    assert cli("chat", str(local), stdin=b"And now?\n").out.endswith("Again.\n")
    assert [message["content"] for message in OPENAI.messages(server.bodies[1])] == ["And now?"]
    assert len(said(local)) == 25


def test_a_model_that_cannot_be_had_is_replaced_by_the_smaller_one(
    cli: Cli, server: Server, local: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a new conversation, where nobody named it. What is on record is what answered."""

    def only_the_small_one(model: Model, _progress: Any) -> Path:
        if model is not SMOLLM:
            raise LocalModelError(f"the weights of {model.name} cannot be had")
        return local

    monkeypatch.setattr(answering, "fetched", only_the_small_one)
    server.answers += [OPENAI.stream("Hello."), OPENAI.stream("Again.")]
    result = cli("chat", str(local), stdin=b"hi\n")
    assert (result.code, f"cannot be had; {SMOLLM.name} answers instead\n" in result.err) == (0, True)
    assert f"{SMOLLM.name} is a small model" in result.err
    assert f"with local {SMOLLM.name} (the conversation's provider)" in cli("chat", str(local), stdin=b"and?\n").out
    for arguments in (("--new", f"{local}-2", "--model", QWEN.name), (str(local), "--model", QWEN.name)):
        result = cli("chat", *arguments, stdin=b"hi\n")
        assert (result.code, "answers instead" in result.err) == (1, False)
        assert f"the weights of {QWEN.name} cannot be had" in result.err


def test_the_small_model_can_be_named(cli: Cli, server: Server, local: Path) -> None:
    server.answers += [OPENAI.stream("Hello.")]
    result = cli("chat", str(local), "--provider", "local", "--model", SMOLLM.name, stdin=b"hi\n")
    assert (result.code, f"with local {SMOLLM.name} " in result.out) == (0, True)
    assert f"fetching {SMOLLM.name} (98 MB, once)" in result.err
