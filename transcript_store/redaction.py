r"""Secrets that should not be stored: a function from message to message that takes them out.

.. code-block:: python

    from transcript_store.redaction import SecretRedactor

    redact = SecretRedactor(patterns=[r"ACME-\d{6}"])
    message = redact({"role": "user", "content": "The ticket is ACME-123456."})
    print(message["content"])  # The ticket is [redacted:pattern].

What is found are secrets that show what they are by their form: keys and tokens of services, private keys, JSON web tokens, passwords
in the URL of a server. A password in plain words is not found by anything: give a pattern for it. docs/import.md says what
was measured.
"""

from __future__ import annotations

import base64
import json
import operator
import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

__all__ = ["Redacted", "SecretRedactor"]

KNOWN = 3
"""The version of the forms that are known. It grows when a form is added or changed."""

_ESCAPES = ("\\n", "\\r", "\\t")
_COLOUR = re.compile(r"(?:\x1b|\\(?:u001[bB]|x1[bB]|033|e))\[[0-9;:]{0,24}[A-Za-z]$")
"""How a terminal's colours end, which is by a letter: as it is, and escaped in a text."""
_LONGEST_COLOUR = 32
_WORD = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-")


class _Kind(NamedTuple):
    """A form of secret: ``[redacted:<name>]`` stands for it."""

    name: str
    marks: tuple[str, ...]
    """What it begins with. To look for a text is far faster than for a pattern, and most texts have none of them."""
    rest: str
    """What follows the mark. The secret is the group ``secret``, or mark and rest. No repetition is within another one, and none gives
    back what it took (``++``), so it takes time by the length of what it matches."""
    is_anywhere: bool
    """Whether a letter or digit may stand before the mark."""


def _kind(name: str, marks: str, rest: str, *, anywhere: bool = False) -> _Kind:
    return _Kind(name, tuple(marks.split()), rest, anywhere)


_CHARACTER = r"[A-Za-z0-9_-]"
_SET = r"[\"'\\]{0,4}\s{0,4}[:=]\s{0,4}[\"'\\]{0,4}"
"""Between a name and its value, in any language's notation: ``"Name": "``, ``NAME=``, ``\"name\":\"``."""

_KINDS: tuple[_Kind, ...] = (
    _kind("anthropic-key", "sk-ant-", _CHARACTER + "{20,}+"),
    _kind("openrouter-key", "sk-or-", r"(?:v\d-)?[A-Za-z0-9]{32,}+"),
    _kind("openai-key", "sk-proj- sk-svcacct- sk-admin- sk-None-", _CHARACTER + "{20,}+"),
    _kind("openai-key", "sk-", r"[A-Za-z0-9]{32,}+"),
    _kind("google-key", "AIza", _CHARACTER + r"{35}(?!" + _CHARACTER + ")"),
    _kind("google-token", "ya29. GOCSPX-", _CHARACTER + "{20,}+"),
    _kind("aws-key-id", "AKIA ASIA ABIA ACCA", r"[A-Z2-7]{16}(?![A-Za-z0-9_])"),
    _kind(
        "aws-secret",
        "ecret_access_key ecretAccessKey ECRET_ACCESS_KEY ession_token essionToken ESSION_TOKEN",
        _SET + r"(?P<secret>[A-Za-z0-9/+=]{40,}+)",
        anywhere=True,
    ),
    _kind("github-token", "ghp_ gho_ ghu_ ghs_ ghr_ github_pat_", r"[A-Za-z0-9_]{36,}+"),
    _kind(
        "gitlab-token",
        "glpat- gldt- glrt- gloas- glcbt- glptt- glft- glimt- glagent- glsoat-",
        r"[A-Za-z0-9_.-]{20,}+",
    ),
    _kind("slack-token", "xoxa- xoxb- xoxe- xoxe. xoxo- xoxp- xoxr- xoxs- xapp-", r"[A-Za-z0-9.-]{10,}+"),
    _kind("slack-webhook", "hooks.slack.com/", r"(?:services|workflows)/(?P<secret>[A-Za-z0-9/_-]{20,}+)"),
    _kind("stripe-key", "sk_live_ sk_test_ rk_live_ rk_test_", r"[A-Za-z0-9]{16,}+"),
    _kind("stripe-key", "whsec_", r"[A-Za-z0-9+/=]{24,}+"),
    _kind("npm-token", "npm_", r"[A-Za-z0-9]{36}(?![A-Za-z0-9_])"),
    _kind("pypi-token", "pypi-AgE", _CHARACTER + "{50,}+"),
    _kind("huggingface-token", "hf_ api_org_", r"[A-Za-z0-9]{30,}+(?![_])"),
    _kind("xai-key", "xai-", r"[A-Za-z0-9]{60,}+"),
    _kind("groq-key", "gsk_", r"[A-Za-z0-9]{40,}+"),
    _kind("perplexity-key", "pplx-", r"[A-Za-z0-9]{40,}+"),
    _kind(
        "telegram-token",
        ":AA",
        r"(?<=\d{8}:AA)(?P<secret>" + _CHARACTER + r"{33})(?!" + _CHARACTER + ")",
        anywhere=True,
    ),
    _kind("sendgrid-key", "SG.", _CHARACTER + r"{20,24}\." + _CHARACTER + "{40,45}"),
    _kind("digitalocean-token", "dop_v1_ doo_v1_ dor_v1_", r"[a-f0-9]{64}"),
    _kind("docker-token", "dckr_pat_ dckr_oat_", _CHARACTER + "{20,}+"),
    _kind("databricks-token", "dapi", r"[a-f0-9]{32}(?![A-Za-z0-9_])"),
    _kind("vault-token", "hvs. hvb.", _CHARACTER + "{24,}+"),
    _kind("shopify-token", "shpat_ shpca_ shppa_ shpss_", r"[a-fA-F0-9]{32}"),
    _kind("linear-key", "lin_api_", r"[A-Za-z0-9]{32,}+"),
    _kind("replicate-token", "r8_", r"[A-Za-z0-9]{37,}+"),
    _kind("tavily-key", "tvly-", r"(?:dev-|prod-)?[A-Za-z0-9]{32,}+"),
    _kind("langsmith-key", "lsv2_pt_ lsv2_sk_", r"[a-f0-9]{32}_[a-f0-9]{10}"),
    _kind("supabase-token", "sbp_", r"[a-f0-9]{40}"),
    _kind("postman-key", "PMAK-", r"[a-f0-9]{24}-[a-f0-9]{34}"),
    _kind("grafana-token", "glsa_", r"[A-Za-z0-9]{32}_[A-Fa-f0-9]{8}"),
    _kind("newrelic-key", "NRAK-", r"[A-Z0-9]{27}(?![A-Za-z0-9_])"),
    _kind("atlassian-token", "ATATT3xFfGF0", r"[A-Za-z0-9=_-]{60,}+"),
    _kind("sentry-token", "sntryu_ sntrys_", r"[A-Za-z0-9+/=_-]{60,}+"),
    _kind("doppler-token", "dp.pt. dp.st. dp.ct. dp.sa.", r"[A-Za-z0-9._-]{40,}+"),
    _kind("pulumi-token", "pul-", r"[a-f0-9]{40}(?![A-Za-z0-9_])"),
    _kind("planetscale-token", "pscale_tkn_ pscale_pw_ pscale_oauth_", _CHARACTER + "{32,}+"),
    _kind("rubygems-key", "rubygems_", r"[a-f0-9]{48}"),
    _kind("notion-token", "ntn_", r"[A-Za-z0-9]{40,}+"),
    _kind("netlify-token", "nfp_", r"[A-Za-z0-9]{36,}+"),
    _kind("age-key", "AGE-SECRET-KEY-1", r"[0-9A-Z]{58}"),
    _kind("azure-key", "AccountKey= SharedAccessKey=", r"(?P<secret>[A-Za-z0-9+/]{40,}+={0,2})", anywhere=True),
    _kind("jwt", "eyJ", _CHARACTER + r"{8,}+\.eyJ" + _CHARACTER + r"{8,}+\." + _CHARACTER + "{8,}+"),
    _kind(
        "authorization",
        "uthorization UTHORIZATION",
        _SET + r"(?i:bearer|basic|token)\s{1,4}(?P<secret>[A-Za-z0-9._~+/-]{16,}+=*+)",
        anywhere=True,
    ),
    # postgres://user:password@host: perhaps a user, and a password up to the @.
    _kind(
        "password",
        "://",
        r"[^\s:/@\"'\\<>]{0,256}+:(?P<secret>[^\s/@\"'\\<>]{1,256}+)@[A-Za-z0-9_\[]",
        anywhere=True,
    ),
)
_SHORTEST = len("://:p@h")
_PLACEHOLDER = re.compile(
    r"\$.*|\{.*|%[^%]*%|[*x.]+|\[redacted:.*|(?i:pass(?:word|wd)?|secret|pwd|token|your[-_].*|changeme)"
)
"""What stands where a password would, and is none."""
_NAMED = tuple(kind for kind in _KINDS if kind.rest.startswith(_SET))
"""Those whose name says what they are: it may be the name of a member, and the secret its value."""

_PEM = re.compile(r"-----(BEGIN|END) (?:[A-Z0-9]{1,20} ){0,3}PRIVATE KEY(?: BLOCK)?-----")
_PEM_BODY = re.compile(r"(?:[A-Za-z0-9+/=\s]|\\[nr])*+")
_LEAST_BODY = 40
_DONE = re.compile(r"\[redacted:[a-z0-9-]{1,40}\]")
_TEXTS_WITHIN = 8
"""How deep JSON may stand within texts of JSON: arguments of a call in the arguments of a call."""
_DEEPEST = 254
"""How deep a value may nest: no record holds a deeper one."""


class Redacted(NamedTuple):
    """A value without secrets, and how many of each kind there were."""

    value: Any
    """The very object that was given, if there were none."""
    counts: Mapping[str, int]


def require_redactor(redact: object) -> None:
    """Raise ``TypeError`` unless this is a :class:`SecretRedactor`: what says how many secrets it took out, and by what."""
    if not isinstance(redact, SecretRedactor):
        raise TypeError(f"redact must be a SecretRedactor, not {type(redact).__name__}: give SecretRedactor()")


class SecretRedactor:
    """Takes secrets out of messages: a call gives the message with ``[redacted:<kind>]`` in the place of each.

    Every text anywhere in a message is looked at: names of members too, the values within a text that is JSON, and that text as
    it stands. A message without secrets comes back as the very object that it was; no other is changed. A redacted message has
    none, so it can be given again.

    Thinking that had a secret in it is no longer what its provider signed. Such a block becomes a text, ``[redacted:thinking]``.

    Args:
        patterns: regular expressions of one's own, which are replaced by ``[redacted:pattern]``. They are run as they are: one in
            which a repetition is repeated (``(a+)+``) may take for ever.

    Raises:
        TypeError: a pattern is no text, or ``patterns`` is one pattern.
        ValueError: a pattern is no regular expression, or matches the empty text.
    """

    def __init__(self, *, patterns: Iterable[str] = ()) -> None:
        if isinstance(patterns, (str, bytes)):
            raise TypeError("patterns must be a list of regular expressions, not one of them: give [pattern]")
        self.patterns = tuple(patterns)
        self._own: list[re.Pattern[str]] = []
        for number, text in enumerate(self.patterns, 1):
            if not isinstance(getattr(text, "pattern", text), str):
                raise TypeError(f"pattern {number} must be text, not {type(text).__name__}")
            try:
                pattern = re.compile(text)
            except re.error as error:
                raise ValueError(f"pattern {number} is no regular expression: {error}") from None
            if pattern.search("") is not None:
                raise ValueError(f"pattern {number} matches the empty text, and so everywhere")
            self._own.append(pattern)

    def __repr__(self) -> str:
        return f"SecretRedactor({len(self.patterns)} patterns of one's own)"  # a pattern may be the secret itself

    def __call__(self, message: dict[str, Any]) -> dict[str, Any]:
        """The message without secrets."""
        redacted: dict[str, Any] = self.redact(message).value
        return redacted

    def redact(self, value: Any) -> Redacted:
        """Any JSON value without secrets, and how many of each kind there were."""
        counts: Counter[str] = Counter()
        return Redacted(self._value(value, counts, _TEXTS_WITHIN, 0), dict(sorted(counts.items())))

    def _value(self, value: Any, counts: Counter[str], within: int, depth: int) -> Any:
        if isinstance(value, str):
            return self._text(value, counts, within, depth)
        if not isinstance(value, (list, dict)):
            return value
        if depth > _DEEPEST:
            counts["too-deep"] += 1
            return "[redacted:too-deep]"
        if isinstance(value, dict):
            return self._object(value, counts, within, depth + 1)
        items = [self._value(item, counts, within, depth + 1) for item in value]
        return items if any(map(operator.is_not, items, value)) else value

    def _object(self, value: dict[str, Any], counts: Counter[str], within: int, depth: int) -> dict[str, Any]:
        changed = False
        members: dict[str, Any] = {}
        for name, member in value.items():
            if isinstance(member, str) and name.endswith("_base64"):
                now: Any = self._bytes(member, counts)
            elif isinstance(member, str):
                now = self._text(member, counts, within, depth, name)
            else:
                now = self._value(member, counts, within, depth)
            called = self._text(name, counts, 0, depth)
            changed |= now is not member or called is not name
            while called in members:  # two secrets as names: neither value is lost
                called += "'"
            members[called] = now
        if not changed:
            return value
        if isinstance(value.get("signature"), str) and members.get("thinking") is not value.get("thinking"):
            return {"type": "text", "text": "[redacted:thinking]"}
        return members

    def _text(self, text: str, counts: Counter[str], within: int, depth: int, name: str = "") -> str:
        """A text, which may be the value of a member with a name."""
        if within and text[:1] in ("{", "[") and text.rstrip()[-1:] in ("}", "]"):
            try:
                said = json.loads(text, object_pairs_hook=_each_name_once)
            except ValueError:
                pass  # a text that only looks like it
            except RecursionError:  # how deep Python goes differs from version to version
                counts["too-deep"] += 1
                return "[redacted:too-deep]"
            else:
                now = self._value(said, counts, within - 1, depth)
                if now is not said:
                    text = json.dumps(now, ensure_ascii=False)
                # It is a text too: a pattern may be of a number, or of a name with its value.
        found = [*self._found(text)]
        found += [  # what has a form of its own is called by that
            (first, last, kind)
            for first, last, kind in _of_named(text, name)
            if not any(start <= first and last <= end for start, end, _ in found)
        ]
        found.sort()
        if not found:
            return text
        pieces, done = [], 0
        for start, end, kind in found:
            if start >= done:
                pieces += [text[done:start], f"[redacted:{kind}]"]
                counts[kind] += 1
            elif end > done:  # two kinds meet: both are taken out, the first one is named
                pieces.append("")
            done = max(done, end)
        return "".join((*pieces, text[done:]))

    def _bytes(self, text: str, counts: Counter[str]) -> str:
        """Bytes that were no text: bytes again, without the secrets among them."""
        try:
            read = base64.b64decode(text, validate=True).decode("latin-1")
        except ValueError:
            return self._text(text, counts, 0, 0)
        now = self._text(read, counts, 0, 0)
        return text if now is read else base64.b64encode(now.encode("latin-1", "replace")).decode()

    def _found(self, text: str) -> Iterator[tuple[int, int, str]]:
        """Where secrets stand, and of which kinds."""
        if "PRIVATE KEY" in text:
            yield from _private_keys(text)
        if len(text) >= _SHORTEST:
            for kind in _KINDS:
                for mark in kind.marks:
                    if mark in text:
                        yield from _of_kind(text, kind, mark)
        done = [match.span() for match in _DONE.finditer(text)] if self._own and "[redacted:" in text else []
        for pattern in self._own:
            for match in pattern.finditer(text):
                start, end = match.span()
                before = bisect_right(done, (start, len(text))) - 1
                if end > start and not (before >= 0 and end <= done[before][1]):
                    yield start, end, "pattern"


def _each_name_once(members: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object. One that has a name twice is none: what stands under the first would not be looked at."""
    each = dict(members)
    if len(each) < len(members):
        raise ValueError
    return each


def _of_named(text: str, name: str) -> Iterator[tuple[int, int, str]]:
    """Where secrets stand in the value of a member whose name says what it is."""
    before = f"{name}: "
    for kind in _NAMED:
        for mark in filter(name.endswith, kind.marks):
            for start, end, called in _of_kind(before + text, kind, mark):
                if start >= len(before):
                    yield start - len(before), end - len(before), called


def _of_kind(text: str, kind: _Kind, mark: str) -> Iterator[tuple[int, int, str]]:
    rest = re.compile(kind.rest)  # once: most kinds are in no text
    at = text.find(mark)
    while at >= 0:
        after = at + len(mark)
        match = rest.match(text, after) if kind.is_anywhere or _begins_a_word(text, at) else None
        if match is not None:
            if "secret" not in rest.groupindex:
                yield at, match.end(), kind.name
            elif not _PLACEHOLDER.fullmatch(match["secret"]):
                yield *match.span("secret"), kind.name
            after = match.end()
        at = text.find(mark, after)


def _begins_a_word(text: str, at: int) -> bool:
    r"""Whether no letter or digit stands before a place, except for those of an escape: ``\nsk-…`` in JSON within a text, or a colour."""
    if at == 0 or text[at - 1] not in _WORD or text[at - 2 : at] in _ESCAPES:
        return True
    return text[at - 1].isalpha() and _COLOUR.search(text[max(0, at - _LONGEST_COLOUR) : at]) is not None


def _private_keys(text: str) -> Iterator[tuple[int, int, str]]:
    """From each BEGIN to its END. Without one, as a command that cuts its output leaves it: all that can belong to the key."""
    begun: re.Match[str] | None = None
    for mark in _PEM.finditer(text):
        if begun is not None and mark[1] == "END":
            if mark.start() - begun.end() >= _LEAST_BODY:  # else somebody speaks of the form
                yield begun.start(), mark.end(), "private-key"
            begun = None
        elif mark[1] == "BEGIN":
            if begun is not None:
                yield from _cut_key(text, begun)
            begun = mark
    if begun is not None:
        yield from _cut_key(text, begun)


def _cut_key(text: str, begun: re.Match[str]) -> Iterator[tuple[int, int, str]]:
    body = _PEM_BODY.match(text, begun.end())
    assert body is not None
    if body.end() - begun.end() >= _LEAST_BODY:
        yield begun.start(), body.end(), "private-key"
