r"""Tokens behind ``%253D``, ``\u003d``, ``\x3d``, ``\b`` or ``=3D``, and those with a colour or a character
without a width within them, were missed.

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

WITHOUT_WIDTH = [
    *(
        f"key: ghp_{REST[:9]}{none}{REST[9:20]}{none}{REST[20:]}"
        for none in ("\u200b", "\u00ad", "\u2060\u200d", "\ufeff")
    ),
    "gh\u200bp_" + "\u200b".join([REST[:9], REST[9:20], REST[20:]]),
]
"""As pages and chats that let long words break give them."""
IN_MAIL = [
    f"{'Your new token, which is shown only once, and never again, is'} ghp_{REST[:9]}={end}{REST[9:]}"
    for end in ("\n", "\r\n")
]
"""Quoted-printable: a line longer than 76 columns goes on in the next one."""


@pytest.mark.parametrize("text", BOUNDARIES + COLOURED + WITHOUT_WIDTH + IN_MAIL)
def test_a_token_behind_an_escape_or_coloured_in_part(text: str) -> None:
    redact = SecretRedactor()
    found = redact.redact({"role": "user", "content": text})
    assert found.counts == {"github-token": 1}
    assert not any(part in json.dumps(found.value) for part in (REST[:9], REST[9:20], REST[20:]))
    assert redact.redact(found.value).value is found.value


def test_what_stands_around_a_coloured_secret_stays() -> None:
    said = SecretRedactor()({"text": f"\x1b[1mA\x1b[0m \x1b[31mghp_\x1b[0m{REST}\x1b[0m \x1b[2mB\x1b[0m"})["text"]
    assert said == "\x1b[1mA\x1b[0m \x1b[31m[redacted:github-token]\x1b[0m \x1b[2mB\x1b[0m"


def test_characters_without_a_width_stay_elsewhere() -> None:
    redact = SecretRedactor()
    for text in ("\ufeff# Title", "👩\u200d💻 می\u200cخواهم", "a\u200bb", f"{'x' * 70}=\n{'y' * 70}"):
        assert redact.redact({"text": text}).counts == {}
    assert (
        redact({"text": f"\ufeffa\u200bb {TOKEN} a\u200bb"})["text"]
        == "\ufeffa\u200bb [redacted:github-token] a\u200bb"
    )


def test_codes_within_codes_end_no_import() -> None:
    """Each was removed by a call of its own within the last one, until Python refused."""
    text = "\x1b" * 5_000 + "[0m" * 5_000
    assert SecretRedactor().redact({"text": f"{text} {TOKEN}"}).value == {"text": f"{text} [redacted:github-token]"}


def test_a_key_in_a_coloured_diff() -> None:
    key = f"\x1b[32m+\x1b[m\x1b[32m-----BEGIN PRIVATE KEY-----\x1b[m\n{LINES}\n\x1b[32m+-----END PRIVATE KEY-----\x1b[m"
    found = SecretRedactor().redact({"text": key})
    assert found.counts == {"private-key": 1}
    assert "aB3/" not in found.value["text"]
