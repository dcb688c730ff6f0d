"""Secrets as programs print them, and each door by which they come in.

Reports: NousResearch/hermes-agent#82895 (a ``GOCSPX-`` secret, and secrets within thinking), coalesce-labs/catalyst#3528
(``CATALYST_WORKFLOW_GITHUB_TOKEN=ghp_…``), anthropics/claude-code#86707 (keys of Azure's storage and tokens of Twilio in what tools
print), LionSR/TeXRA#9482 (redacted at one door, and not at the others).
"""

from __future__ import annotations

import asyncio
import base64
import json
import random
import string
from pathlib import Path
from typing import Any

from tests.kit.cases import for_each
from tests.reports.sessions import ClaudeLines, lines
from transcript_store import ConversationLibrary, ConversationStore
from transcript_store.importing import import_conversations
from transcript_store.redaction import SecretRedactor

_BY_CHANCE = random.Random(4)
_WORD = string.ascii_letters + string.digits


def _of(size: int, letters: str = _WORD) -> str:
    return "".join(_BY_CHANCE.choice(letters) for _ in range(size))


def _hex(size: int = 32) -> str:
    return _of(size, "0123456789abcdef")


def _base64(size: int) -> str:
    return base64.b64encode(_BY_CHANCE.randbytes(size)).decode()


ACCOUNT = "AC" + _hex()
PRINTED = [
    ("GOCSPX-" + _of(28), "GOOGLE_CLIENT_SECRET=%s"),
    ("ghp_" + _of(36), "+ export CATALYST_WORKFLOW_GITHUB_TOKEN=%s && gh pr list"),
    ("ghp_" + _of(36), "docker run -eGITHUB_TOKEN=%s image"),
    (_of(76) + "+ASt" + _of(5) + "w==", "%s"),
    (_of(76) + "ACDb" + _of(5) + "A==", "key: %s, and more"),
    (_of(33) + "+ASbB" + _of(5) + "=", "%s"),
    (_of(33) + "AIoTB" + _of(5) + "=", "HostName=a;DeviceId=b;Key=%s"),
    (_of(44) + "AzFu" + _of(5) + "Q==", "https://a.azurewebsites.net/api/x?code=%s"),
    (_of(42) + "AzSeD" + _of(5), "search: %s"),
    (_of(42) + "+ACRB" + _of(5), "docker login -p %s"),
    (_of(52) + "JQQJ99" + _of(26), "AZURE_OPENAI: %s"),
    (_base64(64), "DefaultEndpointsProtocol=https;AccountName=a;AccountKey=%s;EndpointSuffix=core.windows.net"),
    (_base64(64), '[\n  {\n    "keyName": "key1",\n    "permissions": "FULL",\n    "value": "%s"\n  }\n]'),
    (_base64(64), "key1       FULL           %s"),
    (_base64(64), "AZURE_STORAGE_KEY=%s"),
    (_base64(64), "az storage blob list --account-key %s --account-name a"),
    (_base64(32), "aeg-sas-key: %s"),
    (_hex(), "TWILIO_AUTH_TOKEN=%s"),
    (_hex(), '{"account_sid": "' + ACCOUNT + '", "auth_token": "%s"}'),
    (_hex(), "client = Client('" + ACCOUNT + "', '%s')"),
    (_hex(), "curl https://api.twilio.com/2010-04-01/Accounts.json -u " + ACCOUNT + ":%s"),
    (_of(32), "TWILIO_API_SECRET=%s"),
]


@for_each("secret, printed", PRINTED)
def test_what_a_tool_prints_is_stored_without_it(secret: str, printed: str) -> None:
    text = f"$ run\n{printed % secret}\ndone"
    for said in (text, json.dumps({"output": text})):  # as it is, and as JSON within a text
        result = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": said}]}
        kept = json.dumps(SecretRedactor().redact(result).value)
        assert secret[: len(secret) // 2] not in kept
        assert secret[len(secret) // 2 :] not in kept
        assert "done" in kept


@for_each(
    "text",
    [
        "value: " + _base64(64),  # of nobody knows what
        "sha256-" + _base64(32),
        f"auth_token = {_hex()}",
        f"{ACCOUNT} {_hex(40)}",
        _base64(300),
        "TWILIO_AUTH_TOKEN=${TOKEN}",
    ],
)
def test_texts_that_resemble_secrets_stay(text: str) -> None:
    assert SecretRedactor().redact(text).counts == {}


SECRET = "GOCSPX-" + _of(28)


def _messages() -> list[dict[str, Any]]:
    thinking = {"type": "thinking", "thinking": f"It is {SECRET}.", "signature": "c2ln"}
    call = {"type": "tool_use", "id": "t", "name": "run", "input": {"env": {SECRET: [SECRET]}}}
    return [{"role": "user", "content": f"Use {SECRET}."}, {"role": "assistant", "content": [thinking, call]}]


def test_no_door_lets_it_in(tmp_path: Path) -> None:
    from transcript_store.aio import AsyncConversationLibrary

    library = ConversationLibrary(tmp_path / "library", redact=SecretRedactor())
    said = _messages()
    with library.create(labels={"title": SECRET}, system_prompt=SECRET) as store:
        store.append_messages(said, extras=[{"note": SECRET}, None])
        store.append_event({"stderr": SECRET})
        store.update_metadata(model=SECRET)
        store.replace_transcript([*said, *said])
    with ConversationStore(tmp_path / "library" / "by-hand", redact=SecretRedactor(), hold_lock=False) as store:
        store.load_or_initialize(messages=said)
        store.append_message(said[1], extra={SECRET: SECRET})

    async def append() -> None:
        async with await AsyncConversationLibrary(library.directory, redact=SecretRedactor()).create() as conversation:
            await conversation.append_messages(said)
            await conversation.append_event({"stderr": SECRET})

    asyncio.run(append())
    session = ClaudeLines()
    session.user(said[0]["content"])
    session.reply(*said[1]["content"])
    session.add("custom", detail=SECRET)
    source = tmp_path / "session.jsonl"
    source.write_bytes(lines(session.lines))
    (report,) = import_conversations([source], library, redact=SecretRedactor())
    assert report.messages == 2
    written = b"".join(path.read_bytes() for path in Path(library.directory).rglob("*") if path.is_file())
    assert SECRET.encode() not in written
    assert written.count(b"[redacted:google-token]") > 12
