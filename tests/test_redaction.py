"""`SecretRedactor`: what shows by its form that it is a secret is taken out of every text of a message, and nothing else is changed."""

from __future__ import annotations

import base64
import json
import re
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.kit.cases import for_each
from transcript_store.redaction import SecretRedactor
from transcript_store.testing.strategies import json_objects, texts

HEX = "0123456789abcdef" * 4
WORD = "Ab3dEf6hIj9kLm2nOp5qRs8tUv1wXy4z" * 4  # letters and digits, as a random token has
KEY = "MIIEvQIBADANBgkqhkiG9w0BAQEFAASC" * 3
SECRETS: dict[str, list[str]] = {  # put together here, so that nobody who looks for secrets finds one in this file
    "anthropic-key": ["sk-ant-" + "api03-" + WORD[:93] + "AA", "sk-ant-" + "oat01-" + WORD[:60]],
    "openai-key": ["sk-" + WORD[:48], "sk-" + "proj-" + WORD[:100], "sk-" + "svcacct-" + WORD[:60]],
    "openrouter-key": ["sk-or-" + "v1-" + HEX],
    "google-key": ["AIza" + WORD[:35]],
    "google-token": ["ya29." + WORD[:60], "ya29." + "c." + WORD[:60], "GOCSPX" + "-" + WORD[:28]],
    "aws-key-id": ["AKIA" + "ABCDEFGHIJKLMNOP", "ASIA" + "ABCDEFGHIJKLMNOP"],
    "github-token": ["ghp_" + WORD[:36], "ghs_" + WORD[:36], "github_pat_" + WORD[:22] + "_" + WORD[:59]],
    "gitlab-token": ["glpat-" + WORD[:20], "gldt-" + WORD[:20]],
    "slack-token": ["xoxb-" + "123456789012-123456789012-" + WORD[:24], "xapp-" + "1-A012-345-" + HEX],
    "stripe-key": ["sk_live_" + WORD[:24], "rk_test_" + WORD[:24], "whsec_" + WORD[:32]],
    "npm-token": ["npm_" + WORD[:36]],
    "pypi-token": ["pypi-" + "AgEIcHlwaS5vcmc" + WORD[:80]],
    "huggingface-token": ["hf_" + WORD[:34]],
    "xai-key": ["xai-" + WORD[:80]],
    "groq-key": ["gsk_" + WORD[:52]],
    "perplexity-key": ["pplx-" + WORD[:48]],
    "sendgrid-key": ["SG." + WORD[:22] + "." + WORD[:43]],
    "digitalocean-token": ["dop_v1_" + HEX],
    "docker-token": ["dckr_pat_" + WORD[:27]],
    "databricks-token": ["dapi" + HEX[:32]],
    "vault-token": ["hvs." + WORD[:24]],
    "shopify-token": ["shpat_" + HEX[:32]],
    "linear-key": ["lin_api_" + WORD[:40]],
    "replicate-token": ["r8_" + WORD[:37]],
    "tavily-key": ["tvly-" + WORD[:32], "tvly-" + "dev-" + WORD[:32]],
    "langsmith-key": ["lsv2_pt_" + HEX[:32] + "_" + HEX[:10]],
    "supabase-token": ["sbp_" + HEX[:40]],
    "postman-key": ["PMAK-" + HEX[:24] + "-" + HEX[:34]],
    "grafana-token": ["glsa_" + WORD[:32] + "_" + HEX[:8]],
    "newrelic-key": ["NRAK-" + WORD[:27].upper()],
    "atlassian-token": ["ATATT3xFfGF0" + WORD[:120] + "=0A1B2C3D"],
    "sentry-token": ["sntryu_" + HEX],
    "doppler-token": ["dp.pt." + WORD[:43]],
    "pulumi-token": ["pul-" + HEX[:40]],
    "planetscale-token": ["pscale_tkn_" + WORD[:43]],
    "rubygems-key": ["rubygems_" + HEX[:48]],
    "notion-token": ["ntn_" + WORD[:46]],
    "netlify-token": ["nfp_" + WORD[:36]],
    "age-key": ["AGE-SECRET-KEY-1" + "QPZRY9X8GF2TVDW0S3JN54KHCE6MUA7LQPZRY9X8GF2TVDW0S3JN54KHCE"],
    "jwt": ["eyJhbGciOiJIUzI1NiJ9" + ".eyJzdWIiOiIxMjM0NTY3ODkwIn0." + WORD[:43]],
    "private-key": [
        f"-----BEGIN {kind}PRIVATE KEY-----\n{KEY}\n{KEY}\n-----END {kind}PRIVATE KEY-----"
        for kind in ("", "RSA ", "EC ", "OPENSSH ", "ENCRYPTED ")
    ],
}
WITHIN = {  # the secret, and the text around it that says what it is
    "aws-secret": [
        ("aws_secret_access_key = {}", WORD[:40]),
        ('"SecretAccessKey": "{}"', WORD[:40]),
        ("aws configure set aws_secret_access_key {}", WORD[:40]),
        ("AWS Secret Access Key [None]: {}", WORD[:40]),
        ("AWS Secret Access Key [****************ABCD]: {}", WORD[:40]),
        ("AWS_SECRET_KEY={}", WORD[:40]),
        ("AWS_SESSION_TOKEN=\n{}", "b" + WORD[:60]),
        ("'secret_access_key' => '{}'", "b" + WORD[:60]),
        ('{{"name": "AWS_SECRET_ACCESS_KEY", "value": "{}"}}', WORD[:40]),
    ],
    "telegram-token": [("1234567890:AA{}", WORD[:33])],
    "slack-webhook": [("https://hooks.slack.com/services/{}", "T01234567/B01234567/" + WORD[:24])],
    "azure-key": [("DefaultEndpointsProtocol=https;AccountName=a;AccountKey={};", WORD[:86] + "==")],
    "authorization": [
        ("Authorization: Bearer {}", WORD[:32]),
        ('"authorization":"Basic {}"', WORD[:24]),
        ('{{"name":"Authorization","value":"Bearer {}"}}', WORD[:40]),
        ('{{\n    "name": "Authorization",\n    "value": "Bearer {}"\n}}', WORD[:40]),
        ("('Authorization', 'Bearer {}')", WORD[:40]),
        ("(b'Authorization', b'Bearer {}')", WORD[:40]),
        ("{{b'Authorization': b'Bearer {}'}}", WORD[:40]),
    ],
    "password": [
        ("postgres://me:{}@db.example/x", "hunter2!"),
        ("redis://:{}@localhost:6379", "s3cr3t-%40"),
        ("postgres://me:{}@db.example/x?mail=a@b.example", "p@ssw0rdLong"),
        ("redis://:{}@cache:6379/0", "abc/defGHI123"),
        ("postgres://me:{}@db/x", "$uper$ecret99"),
        ("postgres://me:{}@db/x", "{abc123}xyz"),
        ("https://me:{}@x.example/", "what?ever#1"),
    ],
}
EVERY = [(kind, secret, secret) for kind, secrets in SECRETS.items() for secret in secrets]
EVERY += [(kind, around.format(secret), secret) for kind, pairs in WITHIN.items() for around, secret in pairs]


@for_each("kind, text, secret", EVERY)
def test_a_secret_is_found_wherever_it_stands(kind, text, secret):
    """In prose, quoted, assigned, in a URL's query; in a name, in JSON within a text, and within that; escaped there."""
    redact = SecretRedactor()
    inner = json.dumps({"command": f"export X\n{text}", "n": [text]})
    message = {
        "role": "assistant",
        "content": [{"type": "text", "text": f"It is {text}, I think."}, {"type": "text", "text": f"'{text}'"}],
        "tool_calls": [{"function": {"name": "f", "arguments": inner}}, {"arguments": json.dumps({"again": inner})}],
        "url": f"?a=1&key={text}&b=2" if "\n" not in text else "",
        text: "a name",
    }
    found, counts = redact.redact(message)
    spelled = json.dumps(found)
    for form in (secret, json.dumps(secret)[1:-1], json.dumps(json.dumps(secret))):
        assert form not in spelled
    assert f"[redacted:{kind}]" in found["content"][0]["text"]
    assert set(counts) == {kind}
    assert json.loads(found["tool_calls"][0]["function"]["arguments"])["n"] == [
        text.replace(secret, f"[redacted:{kind}]")
    ]
    torn = json.dumps({"cut": text, "and": text})[:-4]  # JSON that a crash cut: it is a text
    assert json.dumps(secret)[1:-1] not in redact.redact(torn + "\\n" + text).value
    again = redact.redact(found)
    assert (again.value is found, again.counts) == (True, {})


@pytest.mark.parametrize(
    "text",
    [
        "risk-free, task-1234567890123456789012345678901234567890",  # no word begins there
        "sk-learn and sk-ant-farm, hf_hub_download_with_a_long_name_of_a_function",
        "postgres://user:$PASSWORD@host, postgres://me:<password>@host, https://x:{token}@host, http://a:****@b",
        "-----BEGIN PRIVATE KEY----- is how it begins, and -----END PRIVATE KEY----- how it ends",
        "If a file starts with -----BEGIN PRIVATE KEY----- then it is PKCS8 and openssl can convert it into the other form",
        "echo -----BEGIN PRIVATE KEY-----\necho line two of a script that goes on and on and on and on\nrm it",
        'f"-----BEGIN PRIVATE KEY-----\\n{base64.b64encode(bytes_of_the_key).decode()}\\n-----END PRIVATE KEY-----"',
        '"-----BEGIN PRIVATE KEY-----" + Base64EncodedBytesOf2Keys(key) + newline',
        "-----BEGIN PRIVATE KEY-----\n./com/Example/keys/implementation/loaders/Loader.java",
        "-----BEGIN PRIVATE KEY----- " + "is how it begins. " * 20 + f"data:image/png;base64,{KEY}",
        "grep -l 'BEGIN PRIVATE KEY-----'\n-----BEGIN PRIVATE KEY-----\n" + HEX + "  src/keys",
        f"-----BEGIN PRIVATE KEY----- (left out)\n-----BEGIN CERTIFICATE-----\n{KEY}\n-----END CERTIFICATE-----",
        "uses: docker://alpine:3.18@sha256:" + HEX,
        "http://localhost:8080?user=bob@example.com http://localhost:$PORT/@scope/pkg redis://localhost:6379/0?by=me@x redis://[::1]:6379/0?by=me@x app://C:/me@x",
        "http://registry:4873/@scope/pkg ssh://example.com:group/x@v1 http://[::1]:8080/@x file://C:/me@x",
        "postgres://u:${PASSWORD}@h postgres://u:{{password}}@h f'postgres://u:{settings.password}@h' postgres://%s:%s@h",
        "authentication, authorization, token introspection-endpoint",
        "aws_secret_access_key is read from the environment",
        "AKIA, AIza, eyJ, ghp_, 12:30:AAA, https://example.com:8080/a@b",
        "the password is hunter2",
        "commit 0123456789abcdef0123456789abcdef01234567",
        "d41d8cd98f00b204e9800998ecf8427e 0195cafe-0000-4000-8000-000000000001",
    ],
)
def test_what_only_looks_a_little_like_one_stays(text):
    """The very object comes back."""
    message = {"role": "user", "content": text, "n": 1, "nothing": None, "within": json.dumps({"a": text})}
    assert SecretRedactor()(message) is message


def test_patterns_of_ones_own():
    """They are replaced like the others, once. A second run finds nothing, even if a pattern matches the replacement."""
    redact = SecretRedactor(patterns=[r"ACME-\d{6}", r"[a-z]+", "(?i)hunter2"])
    found = redact({"ACME-123456": "HUNTER2 7"})
    assert found == {"[redacted:pattern]": "[redacted:pattern] 7"}
    assert redact(found) is found
    assert "ACME" not in repr(redact)
    number = SecretRedactor(patterns=[r"\d+"])  # what was a port is not taken for a password now
    found = number.redact("redis://localhost:6379/x?by=me@x.example").value
    assert found == "redis://localhost:[redacted:pattern]/x?by=me@x.example"
    assert number.redact(found).value is found


@for_each(
    "name, value, secret",
    [
        ("SecretAccessKey", WORD[:40], WORD[:40]),
        ("aws_secret_access_key", WORD[:40], WORD[:40]),
        ("Authorization", f"Bearer {WORD[:32]}", WORD[:32]),
        ("proxy-authorization", f"Basic {WORD[:24]}", WORD[:24]),
        ("Authorization", [f"Bearer {WORD[:32]}", "x"], WORD[:32]),
    ],
)
def test_a_secret_whose_name_is_the_members(name, value, secret):
    """The headers that a tool is called with, and what ``aws iam create-access-key`` prints: name and value were looked at each alone,
    and the secret was stored.
    """
    redact = SecretRedactor()
    call = {"type": "tool_use", "input": {"headers": {name: value}}}
    for message in (call, {"role": "tool", "content": json.dumps(call)}, {"content": json.dumps(call, indent=1)}):
        found = redact.redact(message)
        assert secret not in json.dumps(found.value)
        assert sum(found.counts.values()) == 1
        assert redact(found.value) is found.value
        text = found.value.get("content")
        assert text is None or json.loads(text)["input"]["headers"].keys() == {name}


@for_each(
    "headers",
    [
        [{"name": "Authorization", "value": f"Bearer {WORD[:40]}"}],
        [{"value": f"Bearer {WORD[:40]}", "enabled": True, "key": "authorization"}],
        [["Accept", "*/*"], ["Authorization", f"Bearer {WORD[:40]}"]],
        ["Accept", "*/*", "Authorization", f"Bearer {WORD[:40]}", "Host", "x.example"],
        ["aws", "configure", "set", "aws_secret_access_key", WORD[:40]],
        [{"Name": "AWS_SECRET_ACCESS_KEY", "Value": WORD[:40]}],
    ],
)
def test_a_secret_whose_name_stands_beside_it_or_in_front_of_it(headers):
    """Headers as a HAR file, Postman, Node and Python have them, a command in pieces, the environment of a container."""
    redact = SecretRedactor()
    for message in ({"headers": headers}, {"content": json.dumps({"headers": headers})}):
        found = redact.redact(message)
        assert WORD[:40] not in json.dumps(found.value)
        assert sum(found.counts.values()) == 1
        assert redact(found.value) is found.value


@for_each(
    "text",
    [
        '{"limit": 1e400, "price": 1.10, "big": 1E5, "n": -0, "x": 0.1000000000000000055511151231257827, "t": "%s"}',
        '{"n": [Infinity, NaN, 12345678901234567890123], "t": ["%s", "%s"]}',
        '{\n\t"a" : [ 1 ,2 ],\r\n  "%s": {"b\\/": "\\u00e9\\ud83d", "c": "\\"%s"}\n}\n',
        '[[], {}, "\\\\", "é", {"%s": "%s", "e": []}, true, null, "%s"]',
    ],
)
def test_json_in_a_text_is_spelled_as_it_was(text):
    """Numbers that Python writes in another way, or not at all: 1e400 became Infinity, which is no JSON. Blanks, and escapes."""
    secrets = iter(["ghp_" + WORD[n : n + 36] for n in range(3)])
    written = re.sub("%s", lambda _: next(secrets), text)
    call = {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": written}}]}
    found = SecretRedactor()(call)["tool_calls"][0]["function"]["arguments"]
    names = json.loads(written)
    assert found == text.replace("%s", "[redacted:github-token]")
    assert isinstance(json.loads(found), type(names))


def test_json_in_a_text_of_which_a_part_becomes_another_one():
    """Thinking that is no longer signed, two names that become one, a value too deep: the text around them stays."""
    secret = SECRETS["github-token"][0]
    signed = f'{{"type": "thinking", "thinking": "{secret}", "signature": "c2ln"}}'
    deep = "[" * 300 + '"]["' + "]" * 300
    text = f'{{"a": 1.0, "b": [{signed}, 2.50], "{secret}": 1e2, "{secret[:-1]}B": 1.0, "deep": {deep}, "z": 1.0}}'
    found = SecretRedactor()({"content": text})["content"]
    assert found.startswith(
        '{"a": 1.0, "b": [{"type": "text", "text": "[redacted:thinking]"}, 2.50], "[redacted:github-token]": 1e2, '
    )
    assert found.endswith(', "z": 1.0}')
    assert json.loads(found)["[redacted:github-token]'"] == 1.0
    assert "[redacted:too-deep]" in found


def test_an_escape_that_no_text_can_hold_alone_stays_an_escape():
    """Half a character, escaped in JSON within a text: spelled out it could not be stored."""
    text = '{"é": "\\ud83d ' + SECRETS["github-token"][0] + '"}'
    found = SecretRedactor()({"content": text})["content"]
    assert found == '{"é": "\\ud83d [redacted:github-token]"}'
    assert found.encode()


def test_json_in_a_text_that_has_a_name_twice():
    """Readers see the second value alone, and the first one was stored as it is."""
    secret = SECRETS["npm-token"][0]
    for text in (f'{{"k":"{secret}","k":"x","other":"y"}}', f'[{{"k":"{secret}","k":"x"}},1]'):
        assert SecretRedactor()({"content": text}) == {"content": text.replace(secret, "[redacted:npm-token]")}


def test_a_pattern_of_ones_own_that_goes_over_name_and_value_of_json_in_a_text():
    redact = SecretRedactor(patterns=[r'"password": ?"[^"]+"', r"\b4\d{15}\b"])
    message = {"content": '{"user": "me", "password": "hunter2", "card": 4111111111111111}'}
    found = redact(message)
    assert found == {"content": '{"user": "me", [redacted:pattern], "card": [redacted:pattern]}'}
    assert redact(found) is found


@for_each("pattern", ["(", "a*", "", "x|"])
def test_a_pattern_that_is_none_or_matches_nothing_is_refused(pattern):
    with pytest.raises(ValueError, match="pattern 2"):
        SecretRedactor(patterns=["fine", pattern])


def test_one_pattern_in_the_place_of_a_list_is_refused():
    """Each of its letters would be one."""
    with pytest.raises(TypeError, match=r"pass \[pattern\]"):
        SecretRedactor(patterns="ACME")
    for other in (b"ACME", 5, re.compile(b"ACME")):
        with pytest.raises(TypeError, match="pattern 2 must be text"):
            SecretRedactor(patterns=["fine", other])  # type: ignore[list-item]


@for_each("colour", ["\x1b[32m", "\x1b[1;38;5;10m", "\\u001b[0m", "\\x1b[K", "\\033[31m"])
def test_a_colour_of_the_terminal_ends_in_a_letter_and_is_none(colour):
    """Found by tests/measured_secrets.py: a program prints a token in green, and it seemed to begin within a word."""
    secret = SECRETS["github-token"][0]
    assert SecretRedactor().redact(f"token: {colour}{secret}").value == f"token: {colour}[redacted:github-token]"
    assert SecretRedactor().redact(f"{colour}task-{secret[4:]}").counts == {}


def test_thinking_that_had_a_secret_is_no_longer_signed():
    """Its provider would refuse a signed text that was changed; the block says that it was there."""
    secret = SECRETS["github-token"][0]
    blocks = [
        {"type": "thinking", "thinking": f"The token is {secret}.", "signature": "c2ln"},
        {"type": "thinking", "thinking": "Hm.", "signature": "c2ln"},
    ]
    found = SecretRedactor()({"role": "assistant", "content": blocks})
    assert found["content"] == [{"type": "text", "text": "[redacted:thinking]"}, blocks[1]]


def test_a_signature_that_a_pattern_changes_signs_nothing():
    """Only the signature has the digits: the block was stored with a broken one, which its provider refuses at every later turn."""
    block = {"type": "thinking", "thinking": "ok", "signature": "EqQBCkYIBxgCKkA1234567890123456abc=="}
    redact = SecretRedactor(patterns=[r"\d{16}"])
    assert redact({"content": [block]}) == {"content": [{"type": "text", "text": "[redacted:thinking]"}]}
    described = {"name": "f", "signature": "def f(n=1234567890123456)"}  # not of thinking: as any other text
    assert redact(described) == {"name": "f", "signature": "def f(n=[redacted:pattern])"}


def test_names_that_become_one_keep_both_values():
    one, other = "ghp_" + WORD[:36], "ghp_" + WORD[1:37]
    assert sorted(SecretRedactor()({one: 1, other: 2}).values()) == [1, 2]


def test_a_key_of_which_the_end_is_missing():
    """A command cut its output, or the next key begins: what can belong to it is taken out."""
    begin, end = "-----BEGIN PRIVATE KEY-----\n", "-----END PRIVATE KEY-----"
    text = f"{begin}{KEY}\n{KEY}\n... (truncated)\n{begin}{KEY}\n{end} after"
    found = SecretRedactor().redact(text).value
    assert KEY not in found
    assert found == "[redacted:private-key]\n... (truncated)\n[redacted:private-key] after"


LINES = [f"{KEY[n:]}{KEY[:n]}"[:64] for n in range(12)]
SHOWN = {
    "as it is": "{line}",
    "by Read of Claude Code": "{n:6d}→{line}",
    "by cat -n": "{n:6d}\t{line}",
    "by grep -n": "{n}:{line}",
    "by grep -rn": "keys/id_rsa:{n}:{line}",
    "in a diff": "-{line}",
    "quoted": "> {line}",
    "commented": "# {line}",
    "in a log": "2026-11-26T08:00:00.123Z app[1] {line}",
    "as pieces of a program": '    "{line}\\n"',
}


@for_each("shown", SHOWN)
@for_each("header", [[], ["Proc-Type: 4,ENCRYPTED", "DEK-Info: AES-256-CBC," + HEX[:32].upper(), ""]])
def test_a_key_that_is_cut_off_by_what_shows_it(shown, header):
    """Each line has something in front of it, and the last one is a piece of one: no line is left, and what comes after stays."""
    key = ["-----BEGIN RSA PRIVATE KEY-----", *header, *LINES, "QUJD"]
    text = "\n".join(SHOWN[shown].format(n=n, line=line) for n, line in enumerate(key, 1))
    redact = SecretRedactor()
    for whole in (text, f"{text}\n\n(The rest was left out, because it is too long for this place.)\n" + HEX):
        for spelled in (whole, json.dumps(whole)):  # the second one escaped, in quotes
            found = redact.redact(spelled)
            assert found.counts == {"private-key": 1}
            assert not [line for line in (*LINES, "QUJD") if line in found.value]
            assert ("left out" in found.value) == ("left out" in spelled)
            assert redact.redact(found.value).value is found.value


def test_a_key_of_which_the_middle_was_left_out():
    """The note between two of its lines does not end it."""
    lines = ["-----BEGIN PRIVATE KEY-----", *LINES[:5], "... [20 lines omitted] ...", *LINES[7:]]
    assert SecretRedactor().redact("\n".join(lines)).value == "[redacted:private-key]"
    lines += ["The rest of it was left out."]
    assert SecretRedactor().redact("\n".join(lines)).value == "[redacted:private-key]\nThe rest of it was left out."


def test_a_key_whose_line_ends_were_dropped():
    """As a variable of the environment has it, and as a tool prints that: with blanks for them, or without."""
    for between in ("", " ", "\\n", "\\\\n"):
        cut = between.join(["-----BEGIN PRIVATE KEY-----", *LINES])
        assert SecretRedactor().redact(f"KEY={cut}").value == "KEY=[redacted:private-key]"


def test_bytes_that_were_no_text():
    """A line that is no UTF-8 is kept as base64: the secret in it is taken out all the same."""
    secret = SECRETS["npm-token"][0].encode()
    kept = base64.b64encode(b"\xff\xfe " + secret + b" \n").decode()
    found = SecretRedactor().redact({"raw_base64": kept}).value
    assert base64.b64decode(found["raw_base64"]) == b"\xff\xfe [redacted:npm-token] \n"


def test_what_nests_too_deeply_to_be_looked_at_is_taken_out():
    deep: Any = SECRETS["npm-token"][0]
    for _ in range(5000):
        deep = [deep]
    found = SecretRedactor().redact({"deep": deep, "json": "[" * 5000 + "]" * 5000})
    assert found.counts == {"too-deep": 2}


SAID = texts() | st.sampled_from([text for _, text, _ in EVERY])


@given(json_objects(strings=SAID))
def test_any_message_is_redacted_once(message):
    """What was redacted has no secret any more; what had none is the same object; the one that was given is as it was."""
    before = json.dumps(message)
    redact = SecretRedactor(patterns=["[0-9]+"])
    found = redact(message)
    assert json.dumps(message) == before
    assert redact(found) is found
    spelled = json.dumps(found)
    assert not [secret for _, _, secret in EVERY if json.dumps(secret)[1:-1] in spelled]


HOSTILE = {
    **{f"{mark!r} again and again": mark for mark in ("sk-", "sk-ant-", "eyJ", "eyJaaaaaaaa.", "://", "://a:", "AIza")},
    **{
        f"{mark!r} again and again": mark
        for mark in ("\\nsk-", "1234567890:AA", "[redacted:x]", '{"a":', "[", "A", "a=")
    },
    "beginnings of keys": "-----BEGIN PRIVATE KEY-----",
    "half beginnings of keys": "-----BEGIN A A A A ",
    "headers": "authorization: bearer ",
    "names of secrets": "secret_access_key=    ",
    "whitespace": " ",
    "colours": "\x1b[31m" + "[31;" * 9 + "msk-",
    "lines of a key": "-----BEGIN PRIVATE KEY-----\n" + (LINES[0] + "\n") * 9 + "x" * 130,
    "pieces behind a key": "-----BEGIN PRIVATE KEY-----" + LINES[0] + " a" * 100 + ":" + LINES[1] + " a" * 120,
    "a line of a key that does not end": "-----BEGIN PRIVATE KEY-----" + "a1" * 40_000,
    "a line of a key without digits": "-----BEGIN PRIVATE KEY-----" + "aA" * 40_000,
    "passwords with @": "postgres://a:" + "b@" * 200,
    "passwords with /": "postgres://a:" + "b/" * 200,
    "passwords of ports": "redis://a:${" + "b" * 99,
    "ends of keys": "-----END PRIVATE KEY-----",
    "ends of keys after lines": (LINES[0] + "\n") * 9 + "-----END PRIVATE KEY-----",
    "lines of a key before a later END": (LINES[0] + "\n") * 9 + "x" * 300 + "-----END PRIVATE",
    "commands that set": "set -x TOKEN ",
    "commands that set, and names": "export A_KEY=",
    "variables of Terraform": 'variable "token" { default = ',
    "commands that may set a secret": "echo a|",
    "words behind a name": "password: aB1$" + "a.b:" * 300,
    "values behind a name": "password: aB1$&",
    "secrets that are set": "gh secret set --body ",
    "digests": "x://a:b@sha256:",
    "names in front": "'Authorization', 'value': ",
    "names asked for": "Secret Access Key [None",
    "names and blanks": "'secret_access_key',                 'value'    :    ",
    "many texts in JSON": '["ghp_' + WORD[:36] + '", 1e400],',
    "many secrets": "ghp_" + WORD[:36] + " ",
}


@pytest.mark.sampled(every=17)
@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_text_takes_time_by_its_length(name):
    """A megabyte takes a moment, and eight times as much about eight times that."""
    redact = SecretRedactor(patterns=[r"ACME-\d{6}"])

    def seconds(size: int) -> float:
        text = HOSTILE[name] * (size // len(HOSTILE[name]))
        text = f"[{text[:-1]}]" if text.endswith("],") else text
        began = time.process_time()
        redact({"content": text})
        return time.process_time() - began

    small, large = seconds(1 << 17), seconds(1 << 20)
    assert large < 20, f"{large:.1f} s"
    assert large < 24 * small + 0.25, f"{small:.3f} s, and {large:.3f} s for eight times the text"


def test_a_text_with_a_name_takes_time_by_its_length_too():
    """The name was put in front of the text, and each of its secrets found a second time was compared with all of the others."""
    redact = SecretRedactor()

    def seconds(count: int) -> float:
        text = "Authorization: Bearer abcdefghijklmnopqrst\n" * count
        began = time.process_time()
        assert redact.redact({"Authorization": text}).counts == {"authorization": count}
        return time.process_time() - began

    small, large = seconds(1000), seconds(8000)
    assert large < 24 * small + 0.25, f"{small:.3f} s, and {large:.3f} s for eight times the text"
