r"""Tokens behind ``%253D``, ``\u003d``, ``\x3d``, ``\b`` or ``=3D``, and those that ``grep`` had coloured in part, were missed.

Of the kind of ``test_redaction_shapes``: a letter of an escape stood before them, and no form was left where a colour stood within one.
"""

from __future__ import annotations

import json

import pytest

from transcript_store.redaction import SecretRedactor

TOKEN = "ghp_" + "Ab3dEf6hIj9kLm2nOp5qRs8tUv1wXy4zAb3d"
REST = TOKEN[4:]
LINES = "\n".join(f"\x1b[32m+\x1b[m\x1b[32m{'aB3/' * 16}\x1b[m" for _ in range(4))
BOUNDARIES = [
    f"token%253D{TOKEN}%2526a%253D1",
    f"token%25253D{TOKEN}",
    f"token%u003D{TOKEN}",
    f"log: token\\u003d{TOKEN}\\u0026a\\u003d1",
    f"log: \\u003ckey\\u003e{TOKEN}\\u003c/key\\u003e",
    f"log: token\\x3d{TOKEN}",
    f"re.compile(r'\\b{TOKEN}\\b')",
    f"token=3D{TOKEN}",
]
COLOURED = [
    f"\x1b[01;31m\x1b[Kghp_\x1b[m\x1b[K{REST}",
    f"\x1b[35mkey.txt\x1b[m\x1b[36m:\x1b[mghp_{REST[:9]}\x1b[1;31m{REST[9:20]}\x1b[0m{REST[20:]}, and",
    f"word\x1b[32m{TOKEN}\x1b[0mword",
]


@pytest.mark.parametrize("text", BOUNDARIES + COLOURED)
def test_a_token_behind_an_escape_or_coloured_in_part(text: str) -> None:
    redact = SecretRedactor()
    found = redact.redact({"role": "user", "content": text})
    assert found.counts == {"github-token": 1}
    assert not any(part in json.dumps(found.value) for part in (REST[:9], REST[9:20], REST[20:]))
    assert redact.redact(found.value).value is found.value


def test_what_stands_around_a_coloured_secret_stays() -> None:
    said = SecretRedactor()({"text": f"\x1b[1mA\x1b[0m \x1b[31mghp_\x1b[0m{REST}\x1b[0m \x1b[2mB\x1b[0m"})["text"]
    assert said == "\x1b[1mA\x1b[0m \x1b[31m[redacted:github-token]\x1b[0m \x1b[2mB\x1b[0m"


def test_codes_within_codes_end_no_import() -> None:
    """Each was removed by a call of its own within the last one, until Python refused."""
    text = "\x1b" * 5_000 + "[0m" * 5_000
    assert SecretRedactor().redact({"text": f"{text} {TOKEN}"}).value == {"text": f"{text} [redacted:github-token]"}


def test_a_key_in_a_coloured_diff() -> None:
    key = f"\x1b[32m+\x1b[m\x1b[32m-----BEGIN PRIVATE KEY-----\x1b[m\n{LINES}\n\x1b[32m+-----END PRIVATE KEY-----\x1b[m"
    found = SecretRedactor().redact({"text": key})
    assert found.counts == {"private-key": 1}
    assert "aB3/" not in found.value["text"]
