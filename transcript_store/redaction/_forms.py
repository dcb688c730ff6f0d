r"""Forms of secrets: each with the mark by which it is looked for, and where it stands in a text.

To look for a mark is far faster than for a pattern, and most texts have none. From a mark on, an anchored pattern decides.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

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
    back what it took (``++``), or at most 256 characters. So it takes time by the length of what it matches."""
    is_anywhere: bool
    """Whether a letter or digit may stand before the mark."""


def _kind(name: str, marks: str, rest: str, *, anywhere: bool = False) -> _Kind:
    """A kind, and its marks with blanks between them; ``+`` stands for a blank within one."""
    return _Kind(name, tuple(mark.replace("+", " ") for mark in marks.split()), rest, anywhere)


DONE = r"\[redacted:[a-z0-9-]{1,40}\]"
"""What stands in the place of a secret."""
_CHARACTER = r"[A-Za-z0-9_-]"
_QUOTE = r"[\"'\\]"
_SET = (
    rf"(?:{_QUOTE}{{0,4}}(?: ?\[[^\]\s]{{0,32}}\])?\s{{0,4}}[:=]>?\s{{0,4}}(?:b(?=[\"']))?{_QUOTE}{{0,4}}"
    rf"|{_QUOTE}{{1,4}}\s{{0,4}},(?:\s|\\[nrt]){{0,32}}(?:{_QUOTE}{{1,4}}[Vv]alue{_QUOTE}{{1,4}}\s{{0,4}}:\s{{0,4}})?"
    rf"(?:b(?=[\"']))?{_QUOTE}{{1,4}})"
)
"""Between a name and its value, in any notation: ``"Name": "``, ``NAME=``, ``\"name\":\"``, ``Name [as it is set]: ``, ``'name' => '``; and
quoted, as a pair: ``('Name', 'value')``, ``"name":"Name","value":"``.
"""

_PORT = r"\d{2,5}|[$#]{0,2}\{{1,2}[\w.]{0,64}\}{1,2}|\$\w{1,64}|%[ds]|(?i:port)|" + DONE
"""What else stands behind ``host:``."""
_NO_WEB = "".join(rf"(?<!{scheme}://)" for scheme in ("http", "https", "ws", "wss", "file", "ssh", "git"))
"""Behind these schemes ``/`` begins a path, always."""


def _in_url(ends: str) -> str:
    """``user:password@host`` behind ``://``. The password goes up to the last ``@`` before the path. Before its first ``@`` it may hold
    characters that ought to be escaped, except those of ``ends``. A port in front of a path is no password. Nor is what stands before
    the ``@`` of an image's digest.
    """
    never = r"\s\"'\\<>"
    return (
        rf"[^:/@\[{never}]{{0,256}}+:(?!/|(?:{_PORT})[/?#])"
        rf"(?P<secret>[^{ends}@{never}]{{1,256}}+[^/?#{never}]{{0,256}})@(?!sha\d{{3}}:)[A-Za-z0-9_\[]"
    )


_KINDS: tuple[_Kind, ...] = (
    _kind("anthropic-key", "sk-ant-", _CHARACTER + "{20,}+"),
    _kind("openrouter-key", "sk-or-", r"(?:v\d-)?[A-Za-z0-9]{32,}+"),
    _kind("openai-key", "sk-proj- sk-svcacct- sk-admin- sk-None-", _CHARACTER + "{20,}+"),
    _kind("openai-key", "sk-", r"[A-Za-z0-9]{32,}+"),
    _kind("google-key", "AIza", _CHARACTER + r"{35}(?!" + _CHARACTER + ")"),
    _kind("google-token", "ya29. GOCSPX-", r"(?:[A-Za-z0-9]{1,4}\.)?" + _CHARACTER + "{20,}+"),
    _kind("aws-key-id", "AKIA ASIA ABIA ACCA", r"[A-Z2-7]{16}(?![A-Za-z0-9_])"),
    _kind(
        "aws-secret",
        "ecret_access_key ecretAccessKey ECRET_ACCESS_KEY ession_token essionToken ESSION_TOKEN aws_secret_key AWS_SECRET_KEY awsSecretKey"
        " ecret+Access+Key ecret+access+key",
        rf"(?:{_SET}|\s{{1,4}}{_QUOTE}{{0,4}})(?P<secret>[A-Za-z0-9/+=]{{40,}}+)",  # aws configure set NAME VALUE
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
    _kind("password", "://", _in_url("/"), anywhere=True),
    _kind("password", "://", _NO_WEB + _in_url(""), anywhere=True),  # drivers of databases take a "/" in a password
)
_SHORTEST = len("://:p@h")
_PLACEHOLDER = re.compile(
    r"[$#]{0,2}\{{1,2}[\w.]*\}{1,2}|\$\w+|%[^%]*%|%[ds]|[*x.]+|(?:" + DONE + r")+"
    r"|(?i:pass(?:word|wd)?|secret|pwd|token|your[-_].*|changeme)"
)
"""What stands in the place of a password. A text that only begins as a variable does is a password: ``$uper$ecret``."""
_NAMED = tuple(kind for kind in _KINDS if _SET in kind.rest)
"""Those whose name says what they are: it may be the name of a member, and the secret its value."""
_NAMES = tuple(mark for kind in _NAMED for mark in kind.marks)


def secrets_in(text: str) -> Iterator[tuple[int, int, str]]:
    """Where secrets stand, and of which kinds."""
    if len(text) >= _SHORTEST:
        for kind in _KINDS:
            for mark in kind.marks:
                if mark in text:
                    yield from _of_kind(text, kind, mark)


def secrets_named(name: str, text: str) -> Iterator[tuple[int, int, str]]:
    """Where secrets stand in a text of which something else says what it is."""
    if not name.endswith(_NAMES):
        return
    for kind in _NAMED:
        for mark in filter(name.endswith, kind.marks):
            before = f"{mark}: "
            # One: what stands further on has its mark in the text itself.
            for start, end, called in islice(_of_kind(before + text, kind, mark), 1):
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
