"""How many secrets ``SecretRedactor`` misses, and its false alarms: ``python -m tests.measured_secrets`` prints it.

The forms here are written from what the services publish (prefix, alphabet, length), and not from ``redaction/``. Each secret is
random, and planted at a random place of a text that somebody else wrote: of the corpora, if they are there. A secret is found if
no half of it is left in the message. docs/secrets.md has the tables.
"""

from __future__ import annotations

import base64
import json
import os
import random
import string
import sysconfig
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from transcript_store.redaction import SecretRedactor

ALNUM = string.ascii_letters + string.digits
URLSAFE = ALNUM + "-_"
HEX = "0123456789abcdef"
BASE32 = string.ascii_uppercase + "234567"
STANDARD = ALNUM + "+/"
Draw = random.Random


def some(draw: Draw, alphabet: str, length: int) -> str:
    return "".join(draw.choices(alphabet, k=length))


def _of(*pieces: str | tuple[str, int]) -> Callable[[Draw], tuple[str, str]]:
    """A maker of a secret that shows by itself what it is: what is planted, and what must go."""

    def make(draw: Draw) -> tuple[str, str]:
        secret = "".join(piece if isinstance(piece, str) else some(draw, *piece) for piece in pieces)
        return secret, secret

    return make


def _within(before: str, alphabet: str, length: int, after: str = "") -> Callable[[Draw], tuple[str, str]]:
    """A maker of a secret that only what stands around it gives away."""

    def make(draw: Draw) -> tuple[str, str]:
        secret = some(draw, alphabet, length)
        return f"{before}{secret}{after}", secret

    return make


def _private_key(draw: Draw) -> tuple[str, str]:
    body = "\n".join(some(draw, STANDARD, 64) for _ in range(12))
    return f"-----BEGIN OPENSSH PRIVATE KEY-----\n{body}\n-----END OPENSSH PRIVATE KEY-----", body[:64]


def _cut_key(front: str) -> Callable[[Draw], tuple[str, str]]:
    """A private key of which the end was not shown, with this in front of each line."""

    def make(draw: Draw) -> tuple[str, str]:
        key, body = _private_key(draw)
        return "\n".join(front.format(n=n) + line for n, line in enumerate(key.split("\n")[:8], 1)), body

    return make


def _password_with(character: str) -> Callable[[Draw], tuple[str, str]]:
    """A password in the URL of a database, with this somewhere within."""

    def make(draw: Draw) -> tuple[str, str]:
        before = draw.randrange(1, 16)
        secret = some(draw, ALNUM, before) + character + some(draw, ALNUM, 16 - before)
        return f"postgres://app:{secret}@db.example/x", secret

    return make


def _web_token(draw: Draw) -> tuple[str, str]:
    header, claims = (
        base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=")
        for part in ({"alg": "HS256", "typ": "JWT"}, {"sub": some(draw, ALNUM, 12), "iat": draw.randrange(10**9)})
    )
    signature = some(draw, URLSAFE, 43)
    return f"{header}.{claims}.{signature}", signature


def _uuid_as_a_key(draw: Draw) -> tuple[str, str]:
    secret = "-".join(some(draw, HEX, length) for length in (8, 4, 4, 4, 12))
    return f"HEROKU_API_KEY={secret}", secret


KNOWN: dict[str, Callable[[Draw], tuple[str, str]]] = {
    "Anthropic key": _of("sk-ant-", "api03-", (URLSAFE, 93), "AA"),
    "OpenAI project key": _of("sk-", "proj-", (URLSAFE, 156)),
    "OpenAI key": _of("sk-", (ALNUM, 48)),
    "OpenRouter key": _of("sk-or-", "v1-", (HEX, 64)),
    "DeepSeek key": _of("sk-", (HEX, 32)),
    "Google API key": _of("AIza", "Sy", (URLSAFE, 33)),
    "Google OAuth token": _of("ya29.", (URLSAFE, 120)),
    "AWS key id": _of("AKIA", (BASE32, 16)),
    "AWS secret key, named": _within("aws_secret_access_key = ", STANDARD, 40),
    "GitHub token": _of("ghp_", (ALNUM, 36)),
    "GitHub fine-grained token": _of("github_pat_", (ALNUM, 22), "_", (ALNUM, 59)),
    "GitLab token": _of("glpat-", (URLSAFE, 20)),
    "Slack bot token": _of("xoxb-", (string.digits, 12), "-", (string.digits, 12), "-", (ALNUM, 24)),
    "Stripe live key": _of("sk_live_", (ALNUM, 99)),
    "npm token": _of("npm_", (ALNUM, 36)),
    "PyPI token": _of("pypi-AgE", "IcHlwaS5vcmc", (URLSAFE, 150)),
    "Hugging Face token": _of("hf_", (string.ascii_letters, 34)),
    "xAI key": _of("xai-", (ALNUM, 80)),
    "Groq key": _of("gsk_", (ALNUM, 52)),
    "Perplexity key": _of("pplx-", (ALNUM, 48)),
    "Telegram bot token": _of((string.digits, 10), ":AA", (URLSAFE, 33)),
    "SendGrid key": _of("SG.", (URLSAFE, 22), ".", (URLSAFE, 43)),
    "DigitalOcean token": _of("dop_v1_", (HEX, 64)),
    "Docker Hub token": _of("dckr_pat_", (URLSAFE, 27)),
    "Databricks token": _of("dapi", (HEX, 32)),
    "Vault token": _of("hvs.", (URLSAFE, 92)),
    "Shopify token": _of("shpat_", (HEX, 32)),
    "Linear key": _of("lin_api_", (ALNUM, 40)),
    "age key": _of("AGE-SECRET-KEY-1", ("QPZRY9X8GF2TVDW0S3JN54KHCE6MUA7L", 58)),
    "Azure storage key": _within("AccountName=a;AccountKey=", STANDARD, 86, "=="),
    "JSON web token": _web_token,
    "private key (PEM)": _private_key,
    "Authorization header": _within("Authorization: Bearer ", ALNUM, 40),
    "password in a URL": _within("postgres://app:", ALNUM, 16, "@db.example/x"),
    "Replicate token": _of("r8_", (ALNUM, 37)),
    "Tavily key": _of("tvly-", (ALNUM, 32)),
    "LangSmith key": _of("lsv2_pt_", (HEX, 32), "_", (HEX, 10)),
    "Supabase token": _of("sbp_", (HEX, 40)),
    "Postman key": _of("PMAK-", (HEX, 24), "-", (HEX, 34)),
    "Grafana token": _of("glsa_", (ALNUM, 32), "_", (HEX, 8)),
    "New Relic key": _of("NRAK-", (string.ascii_uppercase + string.digits, 27)),
    "Atlassian token": _of("ATATT3xFfGF0", (URLSAFE, 172), "=", (HEX.upper(), 8)),
    "Sentry token": _of("sntryu_", (HEX, 64)),
    "Doppler token": _of("dp.pt.", (ALNUM, 43)),
    "Pulumi token": _of("pul-", (HEX, 40)),
    "PlanetScale token": _of("pscale_tkn_", (URLSAFE, 43)),
    "RubyGems key": _of("rubygems_", (HEX, 48)),
    "Notion token": _of("ntn_", (ALNUM, 46)),
    "Netlify token": _of("nfp_", (ALNUM, 36)),
    "Google OAuth token of a service": _of("ya29.", "c.", (URLSAFE, 200)),
    "AWS secret key, set by a command": _within("aws configure set aws_secret_access_key ", STANDARD, 40),
    "AWS secret key, asked for": _within("AWS Secret Access Key [None]: ", STANDARD, 40),
    "AWS_SECRET_KEY": _within("AWS_SECRET_KEY=", STANDARD, 40),
    "Authorization header in a HAR file": _within('{"name":"Authorization","value":"Bearer ', ALNUM, 40, '"}'),
    "Authorization header as a pair": _within("('Authorization', 'Bearer ", ALNUM, 40, "')"),
    "Authorization header as a pair of bytes": _within("(b'Authorization', b'Bearer ", ALNUM, 40, "')"),
    "private key cut off, by Read": _cut_key("{n:6d}→"),
    "private key cut off, by grep -n": _cut_key("{n}:"),
    "private key cut off, quoted": _cut_key("> "),
    "private key cut off, in a diff": _cut_key("-"),
    "password in a URL, with @": _password_with("@"),
    "password in a URL, with /": _password_with("/"),
    "password in a URL, with $": _within("postgres://app:$", ALNUM, 8, "$9@db.example/x"),
    "OpenAI session key": _of("sess-", (ALNUM, 40)),
    "Google refresh token": _of("1//0", (URLSAFE, 100)),
    "NVIDIA key": _of("nvapi-", (URLSAFE, 64)),
    "Fireworks key": _of("fw_", (ALNUM, 24)),
    "Cerebras key": _of("csk-", (string.ascii_lowercase + string.digits, 48)),
    "Together key": _of("tgp_v1_", (URLSAFE, 43)),
    "Voyage key": _of("pa-", (URLSAFE, 43)),
    "ElevenLabs key": _of("sk_", (HEX, 48)),
    "Langfuse key": _of("sk-lf-", (HEX, 8), "-", (HEX, 4), "-", (HEX, 4), "-", (HEX, 4), "-", (HEX, 12)),
    "Weights & Biases key": _of("wandb_v1_", (ALNUM, 60)),
    "Slack browser token": _of("xoxc-", (string.digits, 11), "-", (string.digits, 12), "-", (HEX, 64)),
    "Slack browser cookie": _of("xoxd-", (ALNUM, 90), "%3D"),
    "Discord bot token": _of("MT", (ALNUM, 22), ".", (ALNUM, 6), ".", (URLSAFE, 38)),
    "Twilio key": _of("SK", (HEX, 32)),
    "Mailgun key": _of("key-", (HEX, 32)),
    "Mailchimp key": _of((HEX, 32), "-us12"),
    "Brevo key": _of("xkeysib-", (HEX, 64), "-", (ALNUM, 16)),
    "Resend key": _of("re_", (ALNUM, 8), "_", (ALNUM, 24)),
    "Square token": _of("EAAA", (URLSAFE, 60)),
    "Square secret": _of("sq0csp-", (URLSAFE, 43)),
    "Facebook token": _of("EAACEdEose0cBA", (ALNUM, 150)),
    "Figma token": _of("figd_", (URLSAFE, 40)),
    "Airtable token": _of("pat", (ALNUM, 14), ".", (HEX, 64)),
    "Dropbox token": _of("sl.", (URLSAFE, 130)),
    "Tailscale key": _of("tskey-auth-", (ALNUM, 12), "CNTRL-", (ALNUM, 32)),
    "Terraform token": _of((ALNUM, 14), ".atlasv1.", (URLSAFE, 67)),
    "Artifactory key": _of("AKCp", (ALNUM, 69)),
    "CircleCI token": _of("CCIPAT_", (ALNUM, 22), "_", (HEX, 40)),
    "Heroku key": _of("HRKU-AA", (URLSAFE, 58)),
    "Fly.io token": _of("FlyV1 fm2_", (STANDARD, 120)),
    "Mapbox token": _of("sk.eyJ", (ALNUM, 60), ".", (URLSAFE, 22)),
    "1Password token": _of("ops_eyJ", (ALNUM, 250)),
    "Azure client secret": _of((ALNUM, 3), "8Q~", (URLSAFE, 34)),
    "Sourcegraph token": _of("sgp_", (HEX, 16), "_", (HEX, 40)),
    "Bedrock key": _of("ABSK", (STANDARD, 128), "="),
    "LlamaIndex key": _of("llx-", (ALNUM, 48)),
    "Mem0 key": _of("m0-", (ALNUM, 40)),
    "Helicone key": _of("sk-helicone-", (ALNUM, 7), "-", (ALNUM, 7), "-", (ALNUM, 7), "-", (ALNUM, 7)),
    "Browserbase key": _of("bb_live_", (URLSAFE, 27)),
    "Apify token": _of("apify_api_", (ALNUM, 36)),
    "Cursor key": _of("crsr_", (HEX, 64)),
    "Vercel Blob token": _of("vercel_blob_rw_", (ALNUM, 16), "_", (ALNUM, 30)),
    "Render key": _of("rnd_", (ALNUM, 28)),
    "Neon key": _of("napi_", (string.ascii_lowercase + string.digits, 64)),
    "Snyk token": _of("snyk_uat.", (ALNUM, 8), ".", (URLSAFE, 120)),
    "Contentful token": _of("CFPAT-", (URLSAFE, 43)),
    "ClickUp token": _of("pk_", (string.digits, 8), "_", (string.ascii_uppercase + string.digits, 32)),
    "Adafruit key": _of("aio_", (ALNUM, 28)),
    "Polar token": _of("polar_oat_", (ALNUM, 43)),
    "Azure DevOps token": _of((ALNUM, 76), "AZDO", (ALNUM, 4)),
}
"""Secrets that show what they are by their form."""

NOTATIONS: dict[str, Callable[[Draw], tuple[str, str]]] = {
    "curl -u": _within("curl -u admin:", ALNUM, 20, " https://api.example/v1"),
    "X-Api-Key": _within("curl -H 'X-Api-Key: ", ALNUM, 40, "' https://h/"),
    "Authorization without a scheme": _within("curl -H 'Authorization: ", ALNUM, 40, "' https://h/"),
    "Authorization: Bot": _within("Authorization: Bot ", ALNUM, 50),
    "Authorization: ApiKey": _within("Authorization: ApiKey ", ALNUM, 40),
    "Authorization in a URL": _within("Authorization%3A%20Bearer%20", ALNUM, 40),
    "Cookie": _within("Cookie: theme=dark; session=", URLSAFE, 60, "; a=b"),
    "Set-Cookie": _within("Set-Cookie: sid=", URLSAFE, 60, "; HttpOnly"),
    "PGPASSWORD": _within("PGPASSWORD=", ALNUM, 20, " psql -h db"),
    "mysql -p": _within("mysql -uroot -p", ALNUM, 16, " db"),
    "netrc": _within("machine github.com login me password ", ALNUM, 24),
    "netrc in lines": _within("machine github.com\n  login me\n  password ", ALNUM, 24),
    "npm _authToken": _within("//reg.example/:_authToken=", ALNUM, 40),
    "WireGuard": _within("[Interface]\nPrivateKey = ", STANDARD, 43, "="),
    "Kubernetes client-key-data": _within("client-key-data: LS0tLS1CRUdJTi", STANDARD, 400),
    "Azure SAS": _within("https://a.blob.example/c?sv=2022&sig=", ALNUM, 43, "%3D"),
    "AWS presigned": _within("https://b.s3.example/k?X-Amz-Credential=a&X-Amz-Signature=", HEX, 64),
    "PuTTY": _within("PuTTY-User-Key-File-3: ssh-ed25519\nPrivate-Lines: 1\n", STANDARD, 64, "\nPrivate-MAC: 0"),
    "a URL in a URL": _within("postgres%3A%2F%2Fu%3A", ALNUM, 16, "%40db%2Fx"),
}
"""Secrets that only a notation gives away; they stand in a text as the notation has them."""

WRITTEN: dict[str, Callable[[str], str]] = {
    "in prose": lambda text: f" {text} ",
    "in JSON within the text": lambda text: json.dumps({"cmd": text}),
    "in arguments of arguments": lambda text: json.dumps({"arguments": json.dumps({"cmd": text})}),
}

FORMLESS: dict[str, Callable[[Draw], tuple[str, str]]] = {
    "password in words": _within("the password is ", ALNUM, 14),
    "password in JSON, without capitals": _within('"password": "', string.ascii_lowercase + string.digits, 14, '"'),
    "key in hex, named": _within("API_KEY=", HEX, 32),
    "UUID as a key (Heroku)": _uuid_as_a_key,
    "AWS secret key alone": _of((STANDARD, 40)),
    "Mistral key alone": _of((ALNUM, 32)),
    "card number": _of("4", (string.digits, 15)),
}
"""Secrets that have no form of their own: what is missed, on purpose. A pattern of one's own finds those that one knows."""

SESSION_FOLDERS: dict[str, Callable[[str], str]] = {
    "in prose": lambda text: f" {text}, ",
    "quoted": lambda text: f" '{text}' ",
    "in a shell": lambda text: f"\nexport THE_KEY={text}\n",
    "in JSON within the text": lambda text: json.dumps({"env": {"KEY": text}}),
    "in arguments of arguments": lambda text: json.dumps({"arguments": json.dumps({"key": text})}),
    "in a URL's query": lambda text: f" https://x.example/?key={text}&b=2 ",
    "coloured by a terminal": lambda text: f" \x1b[32m{text}\x1b[0m ",
    "in a table": lambda text: f"\n| KEY | {text} |\n",
    "behind =, in a URL": lambda text: f" k%3D{text} ",
    "behind a blank, in a URL": lambda text: f" key%20{text} ",
    "behind a digit": lambda text: f" 12{text} ",
    "behind a name": lambda text: f" NAME_{text} ",
}
ENCODED: dict[str, Callable[[str], str]] = {
    "in base64": lambda text: base64.b64encode(f"key={text}".encode()).decode(),
    "in base64, as URLs have it": lambda text: base64.urlsafe_b64encode(f"käy?={text}".encode()).decode().rstrip("="),
    "in base64, in UTF-16": lambda text: base64.b64encode(f"$key={text}".encode("utf-16-le")).decode(),
}
"""What is a text again, once it is decoded."""

HIDING: dict[str, Callable[[str], str]] = {
    "wrapped at 20 columns": lambda text: "\n".join(text[n : n + 20] for n in range(0, len(text), 20)),
    "its first half": lambda text: text[: len(text) // 2],
    "reversed": lambda text: text[::-1],
}
"""What takes the form away."""


def texts_of_others() -> list[str]:
    """Texts to plant secrets in: those of the corpora. Without corpora, this package's own documents."""
    shared = os.environ.get("TRANSCRIPT_STORE_SHARED")
    folder = Path(shared, "corpora") if shared else Path(__file__).parents[1] / "docs"
    return [text for text in texts_below(folder) if " " in text and len(text) < 20_000]


def texts_below(folder: Path) -> Iterator[str]:
    """Every text of every file in a folder and in those below it."""
    return (text for path in sorted(folder.rglob("*")) if path.is_file() for text in texts_in(path))


def texts_in(path: Path) -> Iterator[str]:
    """Every text of a file: the strings of its JSON lines, or its lines."""
    for line in path.read_text(errors="replace").splitlines():
        try:
            yield from _strings(json.loads(line))
        except ValueError:
            yield line


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        yield from (text for pair in value.items() for part in pair for text in _strings(part))
    elif isinstance(value, list):
        yield from (text for part in value for text in _strings(part))


def planted(texts: list[str], what: str, draw: Draw) -> dict[str, Any]:
    """A message of somebody else's with this in a gap between two words of it."""
    words = draw.choice(texts).split(" ")
    at = draw.randrange(len(words) + 1)
    return {"role": "tool", "content": [{"type": "text", "text": " ".join([*words[:at], what, *words[at:]])}]}


def is_found(redactor: SecretRedactor, message: dict[str, Any], secret: str) -> bool:
    """Whether neither half of the secret is left."""
    left = json.dumps(redactor(message))
    half = max(8, len(secret) // 2)
    return not any(json.dumps(part)[1:-1] in left for part in (secret[:half], secret[-half:]))


def misses(
    makers: dict[str, Callable[[Draw], tuple[str, str]]], places: dict[str, Callable[[str], str]], times: int
) -> dict[tuple[str, str], tuple[int, int]]:
    """For each kind in each place how many were missed, and how many were planted."""
    redactor, texts, hides = SecretRedactor(), texts_of_others(), places.keys() <= (ENCODED | HIDING).keys()
    table = {}
    for kind, make in makers.items():
        for place, put in places.items():
            draw = Draw(f"{kind} {place}")
            missed = 0
            for _ in range(times):
                text, secret = make(draw)
                stands = put(text)
                missed += not is_found(redactor, planted(texts, stands, draw), stands if hides else secret)
            table[kind, place] = missed, times
    return table


def look_alikes(draw: Draw) -> Iterator[str]:
    """What is random and no secret: hashes, ids, checksums, data."""
    yield "-".join(some(draw, HEX, n) for n in (8, 4, 4, 4, 12))
    yield some(draw, HEX, 40)
    yield f"sha256:{some(draw, HEX, 64)}"
    yield f'"integrity": "sha512-{some(draw, STANDARD, 86)}=="'
    yield f"data:image/png;base64,iVBORw0KGgo{some(draw, STANDARD, 400)}"
    yield f"toolu_01{some(draw, ALNUM, 22)} call_{some(draw, ALNUM, 24)} msg_{some(draw, ALNUM, 24)}"
    yield f"Eq{some(draw, STANDARD, 600)}=="  # a signature of thinking
    yield f"uses: docker://alpine:3.18@sha256:{some(draw, HEX, 64)}"
    yield f"http://localhost:{draw.randrange(1000, 9999)}?user={some(draw, ALNUM, 8)}@example.com"
    yield f"-----BEGIN PRIVATE KEY----- is in {some(draw, HEX, 40)}, and its sum is {some(draw, HEX, 64)}"
    yield f"https://x.example:8080/{some(draw, URLSAFE, 22)}?page=2#{some(draw, ALNUM, 6)}"
    yield f"cache-key-{some(draw, HEX, 32)} sess-{some(draw, HEX, 32)} session={some(draw, HEX, 32)} SK-{some(draw, HEX, 8)}"
    yield f"docker run -u 1000:1000 -p {draw.randrange(1000, 9999)}:80 mysql:8.0; useradd -u 1001 -p x"
    yield f"re_compile_and_match_{some(draw, 'abcdef', 24)} fw_version_{some(draw, 'abcdef', 30)} pa-{'-'.join(['word'] * 12)}"
    yield f"Set-Cookie: theme=dark; Path=/; Max-Age=31536000; Expires=Wed, 21 Oct 2026 07:28:{draw.randrange(10, 59)} GMT"
    yield "Authorization: base64.b64encode(credentials) or {'X-Api-Key': settings.api_key_2, 'auth': 'oauth2authorizationcode1'}"
    yield f"Cookie: CUSTOMER=WILE_E_COYOTE; PART_NUMBER=ROCKET_LAUNCHER_{draw.randrange(1000, 9999)}"
    yield f"EAAA{some(draw, STANDARD, 200)}=="  # bytes that begin with 0x10 and zeros


def alarms(texts: Iterator[str]) -> tuple[int, int, Counter[str]]:
    """How many texts and characters there were, and what was taken for a secret in them."""
    redactor = SecretRedactor()
    counts: Counter[str] = Counter()
    number = length = 0
    for text in texts:
        number, length = number + 1, length + len(text)
        counts.update(redactor.redact(text).counts)
    return number, length, counts


def corpora() -> Iterator[tuple[str, Iterator[str]]]:
    """The texts without secrets, by where they are from."""
    if shared := os.environ.get("TRANSCRIPT_STORE_SHARED"):
        for folder in sorted(Path(shared, "corpora").iterdir()):
            files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
            if files:
                yield folder.name, (text for path in files for text in texts_in(path))
    draw = Draw(7)
    yield "hashes, ids, data at random", (text for _ in range(10_000) for text in look_alikes(draw))
    library = Path(sysconfig.get_path("stdlib"))
    own = (path for path in sorted(library.rglob("*.py")) if "site-packages" not in path.parts)
    yield "the standard library of Python", (text for path in own for text in texts_in(path))


def main() -> None:
    found = misses(KNOWN, SESSION_FOLDERS, 25)
    print("kind | missed of planted")
    for kind in KNOWN:
        print(kind, "|", *(sum(found[kind, place][n] for place in SESSION_FOLDERS) for n in (0, 1)))
    print(
        *(f"{place}: {sum(found[kind, place][0] for kind in KNOWN)} of {25 * len(KNOWN)}" for place in SESSION_FOLDERS),
        sep="\n",
    )
    hidden = misses(KNOWN, ENCODED | HIDING, 25)
    print(*(f"{p}: {sum(hidden[k, p][0] for k in KNOWN)} of {25 * len(KNOWN)}" for p in ENCODED | HIDING), sep="\n")
    for (kind, _), (missed, of) in misses(FORMLESS, {"in prose": SESSION_FOLDERS["in prose"]}, 25).items():
        print(kind, "|", missed, of)
    for name, texts in corpora():
        number, length, counts = alarms(texts)
        print(f"{name} | {number:,} texts, {length / 1e6:.1f} MB | {dict(counts)}")


if __name__ == "__main__":
    main()
