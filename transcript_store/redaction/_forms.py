"""Where are the secrets in a text? Each form has a literal that is searched for first.

Searching for a literal is far faster than for a pattern, and most texts contain none. An anchored pattern then decides.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from functools import cache
from itertools import islice, pairwise

from transcript_store.redaction._tokens import DONE, ENDS, NEAR, QUOTE, SET, TOKENS, Kind, secret_kind

__all__ = ["DONE", "secrets_in", "secrets_named", "split_from_unseen", "texts_in_base64"]


# ---- notations ----
#
# Secrets that only their context reveals: the name of a header, of a variable or of an option, or a URL.

_PORT = r"\d{2,5}|[$#]{0,2}\{{1,2}[\w.]{0,64}\}{1,2}|\$\w{1,64}|%[ds]|(?i:port)|" + DONE
"""Other values after ``host:``."""
_NO_WEB = "".join(rf"(?<!{scheme}://)" for scheme in ("http", "https", "ws", "wss", "file", "ssh", "git"))
"""Behind these schemes ``/`` begins a path, always."""


def _in_url(ends: str) -> str:
    """``user:password@host`` behind ``://``. The password goes up to the last ``@`` before the path. Before its first ``@`` it may hold
    characters that ought to be escaped, except those of ``ends``. A port before a path is not a password. Nor is what stands before
    the ``@`` of an image's digest.
    """
    never = r"\s\"'\\<>"
    return (
        rf"[^:/@\[{never}]{{0,256}}+:(?!/|(?:{_PORT})[/?#])"
        rf"(?P<secret>[^{ends}@{never}]{{1,256}}+[^/?#{never}]{{0,256}})@(?!sha\d{{3}}:)[A-Za-z0-9_\[]"
    )


_VALUE = r"(?P<secret>[A-Za-z0-9_~+/=-]{16,512})(?!\.?[A-Za-z0-9_~+/=(\[-])"
"""Not a name of a program: ``base64.b64encode(key)``."""
_WORD_OF_A_SHELL = r"[\"']?(?P<secret>[^\s\"'$<>{}()`\\;&|]{6,128})"
_PAIR = r"(?P<name>[^\s=;,\"']{1,64})=(?P<secret>[A-Za-z0-9%+/=_.~:-]{16,4096})"
_OF_A_VALUE = r"-!#-%*+/-9=@-Z^-_a-z~"
_VALUE_OF_A_NAME = (
    rf"(?=[{_OF_A_VALUE}.:?&]{{8}})(?P<secret>[{_OF_A_VALUE}]{{1,512}}+"
    rf"(?:(?:[.:?]{{1,4}}|&(?!\w{{1,64}}[=;]|#))[{_OF_A_VALUE}]{{1,512}}+){{0,16}})(?![.:?]{{0,4}}[{_OF_A_VALUE}(\[{{])"
)
"""ASCII without quotes, brackets, commas, semicolons and pipes. ``&`` before a name, as in a URL, ends it; so does the end of a
sentence. It is not the name of a function that is called.
"""
_BEHIND_A_NAME = (
    rf"(?:{SET}|\s{{0,2}}[:=]\s?(?:&quot;|&#3[49];)|(?:&quot;|&#3[49];)\s{{0,2}}[:=]\s?(?:&quot;|&#3[49];)"
    r"|:\s?[|>][+-]?(?:\s|\\n){1,16}|(?:[\"']|&quot;)\s{1,4}value=(?:[\"']|&quot;)|>)"
)
"""``SET``, the same with quotes as HTML has them, a block of YAML, an attribute or an element of XML."""
_PASSWORDS = "assword ASSWORD asswd ASSWD assphrase ASSPHRASE DB_PASS _ssh_pass _become_pass"
_API_KEYS = (
    "api_key api-key apikey apiKey ApiKey API_KEY client_secret clientSecret CLIENT_SECRET secret_key secretKey SECRET_KEY SecretKey"
    " access_token accessToken ACCESS_TOKEN refresh_token refreshToken REFRESH_TOKEN auth_token AUTH_TOKEN api_token apiToken"
    " API_TOKEN NPM_TOKEN webhook_secret WEBHOOK_SECRET app_secret APP_SECRET SECRET_TOKEN secret_token"
)
_VARIABLES = "assword ASSWORD assphrase ASSPHRASE _PASS _pass -pass secret Secret SECRET token Token TOKEN key Key KEY"
"""How the name of a secret variable ends. Only a command that sets variables makes these tell enough."""
_OF_A_COMMAND = (
    r"(?:\b(?:export|readonly|set|SET|declare|typeset|env|ENV|ARG|secrets\s{1,4}set|config:(?:set|add))\s(?!\s{0,4}(?:const|let|var)\s)"
    r"|\s-e\s?|--(?:env|env-add|build-arg|from-literal|update-env-vars|set-env-vars)[=\s])[^\r\n|<>()]{0,200}$"
)
"""``export``, ``set`` of cmd, ``heroku config:set``, ``fly secrets set``, ``docker run -e``, ``kubectl --from-literal``."""
_OF_A_CONNECTION = (
    r"(?i:\b(?:host|server|data source|dsn|driver|uid|user id|user|username|dbname|database|initial catalog)\s?=|jdbc:)"
)
_NEW_LINE = r"(?:\s|\\{1,4}[nrt]){1,8}"

NOTATIONS: tuple[Kind, ...] = (
    secret_kind(
        "aws-secret",
        "ecret_access_key ecretAccessKey ECRET_ACCESS_KEY ession_token essionToken ESSION_TOKEN aws_secret_key AWS_SECRET_KEY awsSecretKey"
        " ecret+Access+Key ecret+access+key",
        rf"(?:{SET}|\s{{1,4}}{QUOTE}{{0,4}})(?P<secret>[A-Za-z0-9/+=]{{40,}}+)",  # aws configure set NAME VALUE
        anywhere=True,
    ),
    secret_kind("slack-webhook", "hooks.slack.com/", r"(?:services|workflows)/(?P<secret>[A-Za-z0-9/_-]{20,}+)"),
    secret_kind("azure-key", "AccountKey= SharedAccessKey=", r"(?P<secret>[A-Za-z0-9+/]{40,}+={0,2})", anywhere=True),
    secret_kind(
        "azure-key",
        "AZURE_STORAGE_KEY AZURE_STORAGE_ACCOUNT_KEY --account-key -sas-key",
        rf"(?:{SET}|\s{{1,4}}{QUOTE}{{0,4}})(?P<secret>[A-Za-z0-9+/]{{40,}}+={{0,2}})",
        anywhere=True,
    ),
    secret_kind(  # of the storage's two keys, as `az storage account keys list` prints them
        "azure-key",
        "value FULL",
        rf"(?:{SET}|\s{{1,32}})(?P<secret>[A-Za-z0-9+/]{{86}}==)",
        near=r"\bkey[12]\b",
        anywhere=True,
    ),
    secret_kind(
        "twilio-key",
        "TWILIO_AUTH_TOKEN TWILIO_API_SECRET TWILIO_API_KEY_SECRET",
        SET + r"(?P<secret>[A-Za-z0-9]{32})" + ENDS,
        anywhere=True,
        is_random=True,
    ),
    secret_kind(
        "twilio-key",
        "auth_token authToken",
        SET + r"(?P<secret>[a-f0-9]{32})" + ENDS,
        near=r"(?i:twilio|\bAC[a-f0-9]{32}\b)",
        anywhere=True,
        is_random=True,
    ),
    secret_kind(
        "authorization",
        "uthorization UTHORIZATION",
        SET + r"(?i:bearer|basic|token)(?:\s|%20|\+){1,4}(?P<secret>[A-Za-z0-9._~+/-]{16,}+=*+)",
        anywhere=True,
    ),
    secret_kind(  # without a scheme, or with one that means nothing elsewhere
        "authorization",
        "uthorization UTHORIZATION",
        SET + r"(?:(?i:bot|api-?key|key|digest|sso-key|genie-?key)(?:\s|%20){1,4})?(?!AWS4-)" + _VALUE,
        anywhere=True,
        is_random=True,
    ),
    secret_kind(
        "api-key",
        "-Api-Key -api-key -API-Key -API-KEY -ApiKey -apikey -Auth-Token -auth-token -AUTH-TOKEN -Access-Token -access-token"
        " Private-Token PRIVATE-TOKEN private-token -Vault-Token -vault-token -Auth-Key -auth-key -Subscription-Key",
        SET + _VALUE,
        anywhere=True,
        is_random=True,
    ),
    secret_kind(
        "cookie", "Cookie cookie COOKIE", SET + r"(?P<secret>[^\r\n\"'\\]{16,8192})", anywhere=True, each=_PAIR
    ),
    secret_kind(
        "password",
        "PGPASSWORD MYSQL_PWD REDISCLI_AUTH SSHPASS _PASSWORD _PASSWD",
        r"=" + _WORD_OF_A_SHELL,
        anywhere=True,
        is_random=True,
    ),
    secret_kind(
        "password",
        "+-u --user+ --user= --proxy-user+",
        r"[ \"']{0,2}[^\s:\"']{0,128}:" + _WORD_OF_A_SHELL,
        near=r"\b(?:curl|http)\b",
        anywhere=True,
        is_random=True,
    ),
    secret_kind(
        "password",
        "+-p",
        _WORD_OF_A_SHELL.replace("[\"']?", "[\"']?(?!-)"),
        near=r"\b(?:mysql\w{0,16}|mariadb\w{0,16}|sshpass)\b",
        anywhere=True,
        is_random=True,
    ),
    secret_kind(
        "password",
        "password",
        _NEW_LINE + _WORD_OF_A_SHELL,
        near=rf"\b(?:machine{_NEW_LINE}\S{{1,128}}|default){_NEW_LINE}login{_NEW_LINE}\S{{1,128}}{_NEW_LINE}$",
        anywhere=True,
    ),
    secret_kind(  # sshpass -p VALUE, redis-cli -a VALUE
        "password",
        "+-p+ +-a+ +--pass+",
        _WORD_OF_A_SHELL.replace("[\"']?", "[\"']?(?!-)"),
        near=r"\b(?:sshpass|redis-cli)\b[^|;&\n]{0,128}$",
        anywhere=True,
        is_random=True,
    ),
    secret_kind("password", "pass:", _WORD_OF_A_SHELL, near=r"\bopenssl\b", anywhere=True, is_random=True),
    secret_kind(
        "password",
        "assword= ASSWORD= Pwd= PWD= pwd=",
        r"\{?" + r"(?P<secret>[^\s;&\"'{}()$<>]{6,128})",
        near=_OF_A_CONNECTION,
        anywhere=True,
        is_random=True,
    ),
    secret_kind(
        "password", "jdbc:oracle:thin:", r"[^/@:\s]{1,64}/(?P<secret>[^@\s\"']{4,128})@", anywhere=True, is_random=True
    ),
    secret_kind(
        "password",
        "PASSWORD password BY",
        r"\s{1,4}(?:E)?'(?P<secret>[^'\s]{6,128})'",
        near=r"(?i:\b(?:create|alter)\s{1,4}(?:user|role|login)\b)",
        anywhere=True,
        is_random=True,
    ),
    secret_kind(
        "password",
        _PASSWORDS,
        _BEHIND_A_NAME + _VALUE_OF_A_NAME,
        anywhere=True,
        is_strong=True,
    ),
    secret_kind(
        "api-key",
        _API_KEYS,
        _BEHIND_A_NAME + _VALUE_OF_A_NAME,
        near=r"(?<!AWS_)(?<!aws_)(?<!aws)$",
        anywhere=True,
        is_strong=True,
    ),
    secret_kind(
        "variable",
        _VARIABLES,
        rf"={QUOTE}{{0,4}}" + _VALUE_OF_A_NAME,
        near=_OF_A_COMMAND,
        anywhere=True,
        is_strong=True,
    ),
    secret_kind(  # fish, csh, cmd, PowerShell
        "variable",
        _VARIABLES,
        rf"(?:\}}?\s?=|{QUOTE}{{0,4}}[\s,])\s{{0,4}}{QUOTE}{{0,4}}" + _VALUE_OF_A_NAME,
        near=r"(?:\bset(?:\s{1,4}-[-a-zA-Z]{1,16}){1,4}\s{1,4}|\b(?:setenv|setx)\s{1,4}|SetEnvironmentVariable\(|\$\{?(?i:env):)"
        r"[\"'\\]{0,4}\w{0,64}$",
        anywhere=True,
        is_strong=True,
    ),
    secret_kind(  # Terraform
        "variable",
        _VARIABLES,
        rf"{QUOTE}{{1,4}}\s{{0,4}}\{{[^{{}}]{{0,256}}?\bdefault\s{{0,32}}=\s{{0,4}}{QUOTE}{{1,4}}" + _VALUE_OF_A_NAME,
        near=rf"\bvariable\s{{1,4}}{QUOTE}{{1,4}}[\w-]{{0,64}}$",
        anywhere=True,
        is_strong=True,
    ),
    secret_kind(  # what is set is a secret, whatever its name is
        "variable",
        "gh+secret+set+ vercel+env+add+ wrangler+secret+put+",
        rf"[^\r\n|;]{{0,200}}?(?:(?:--body|--value|-b)[=\s]\s{{0,4}}|<<<\s{{0,4}}|-b(?=[\"'])){QUOTE}{{0,4}}"
        + _VALUE_OF_A_NAME,
        anywhere=True,
        is_random=True,
    ),
    secret_kind(
        "variable",
        "echo+ printf+",
        rf"(?:-[neE]{{1,3}}\s{{1,4}})?(?:{QUOTE}{{0,4}}%s{QUOTE}{{0,4}}\s{{1,4}})?{QUOTE}{{0,4}}"
        + _VALUE_OF_A_NAME
        + rf"{QUOTE}{{0,4}}\s{{0,4}}\|\s{{0,4}}(?:[^\r\n|;]{{1,64}}?\s)?"
        r"(?:gh\s+secret\s+set|vercel\s+env\s+add|wrangler\s+secret\s+put|[^\r\n|;]{1,128}?--password-stdin)\b",
        is_random=True,
    ),
    secret_kind("registry-auth", "auth", SET + r"(?P<secret>[A-Za-z0-9+/]{16,}={0,2})", anywhere=True, is_basic=True),
    secret_kind("registry-auth", "_authToken :_auth :_password", r"\s?=\s?" + _WORD_OF_A_SHELL, anywhere=True),
    secret_kind(
        "wireguard-key", "PrivateKey PresharedKey PreSharedKey", SET + r"(?P<secret>[A-Za-z0-9+/]{43}=)", anywhere=True
    ),
    secret_kind("kubernetes-key", "client-key-data", SET + r"(?P<secret>[A-Za-z0-9+/=]{40,})", anywhere=True),
    secret_kind(  # "-----BEGIN … PRIVATE KEY-----" in base64
        "private-key",
        "LS0tLS1CRUdJTiBQUklWQVRF LS0tLS1CRUdJTiBSU0EgUFJJVkFUR LS0tLS1CRUdJTiBFQyBQUklWQVRF LS0tLS1CRUdJTiBPUEVOU1NIIFBSSVZBVE"
        " LS0tLS1CRUdJTiBFTkNSWVBURUQgUFJJVkFUR LS0tLS1CRUdJTiBEU0EgUFJJVkFUR",
        r"[A-Za-z0-9+/=]{40,}",
    ),
    secret_kind(
        "putty-key",
        "Private-Lines:",
        rf"[ \t]?\d{{1,3}}(?P<secret>(?:{_NEW_LINE}[A-Za-z0-9+/=]{{1,80}}(?![A-Za-z0-9+/=:-])){{1,200}})",
    ),
    secret_kind("signed-url", "?sig= &sig= ;sig=", r"(?P<secret>[A-Za-z0-9%+/]{40,}=?)", anywhere=True),
    secret_kind("signed-url", "Amz-Signature= Goog-Signature=", r"(?P<secret>[a-fA-F0-9]{40,})", anywhere=True),
    secret_kind("signed-url", "Amz-Security-Token=", r"(?P<secret>[A-Za-z0-9%+/=_-]{40,})", anywhere=True),
    secret_kind("password", "://", _in_url("/"), anywhere=True),
    secret_kind(
        "password", "://", _NO_WEB + _in_url(""), anywhere=True
    ),  # drivers of databases take a "/" in a password
    secret_kind(
        "password",
        "%3A%2F%2F %3a%2f%2f",
        r"(?:[A-Za-z0-9._~-]|%(?!3A|3a|40|2F|2f)){0,256}%3[Aa](?P<secret>(?:[A-Za-z0-9._~!*-]|%(?!40|2F|2f)){1,256})%40",
        anywhere=True,
    ),
)


# ---- forms ----

_ESCAPES = ("\\n", "\\r", "\\t", "\\b", "\\f", "\\v")
_COLOUR = re.compile(r"(?:\x1b|\\(?:u001[bB]|x1[bB]|033|e))\[[0-9;:]{0,24}[A-Za-z]$")
"""The end of a terminal's colour code, a letter: raw, and escaped in a text."""
_LONGEST_COLOUR = 32
_NO_WIDTH = "\u00ad\u200b-\u200f\u2060\ufeff"
_UNSEEN = re.compile(
    r"\x1b\[[0-9;:]{0,24}[A-Za-z]"
    rf"|[{_NO_WIDTH}](?<=[!-~{_NO_WIDTH}].)[{_NO_WIDTH}]{{0,256}}+(?=[!-~{_NO_WIDTH}])"
    r"|=(?<=[^\n]{60}=)\r?\n"
)
"""What is not shown of a text: a terminal's colours; the characters without a width that pages and chats put into long words, but not those
that join emoji; and where mail breaks a long line.
"""
_ESCAPED = re.compile(r"(?:(?:%(?:25){0,4}|%u00|\\(?:u00|x))[0-9A-Fa-f]{2}|=3D)$")
"""The end of a character as a URL has it, also one within another's, as a text of JSON or of a program has it, or as mail has ``=``: it may
be a letter.
"""
_LONGEST_ESCAPE = 16
_BETWEEN_WORDS = re.compile(r"[-_.]")
_PART = re.compile(r"[A-Za-z0-9_-]*")
_KINDS = (*TOKENS, *NOTATIONS)
_SHORTEST = len("://:p@h")
_PLACEHOLDER = re.compile(
    r"[$#]{0,2}\{{1,2}[\w.]*\}{1,2}|\$\w+|%[^%]*%|%[ds]|[*x.]+|(?:" + DONE + r")+"
    r"|(?i:pass(?:word|wd)?|secret|pwd|token|your[-_].*|changeme)"
)
"""The placeholder for a password. A text that only begins as a variable does is a password: ``$uper$ecret``."""
_ATTRIBUTES = frozenset({"expires", "path", "domain", "max-age", "samesite", "priority", "version", "comment"})
"""The attributes of a cookie."""
_NAMED = tuple(kind for kind in _KINDS if SET in kind.rest)
"""Those with a telling name: it may be the name of a member, and the secret its value."""
_NAMES = tuple(literal for kind in _NAMED for literal in kind.literals)


_STEMS = (  # noqa: SIM905
    "-A sk- api SS b_ dp hp aut AK AT sk_ -S 1C 1_ sq vc yJ -us _liv pat- 1. Ac u_ ey- iva AA NR b- fm fp g= SEC "
    "rod ret_ %2 // AI CL IA a2 bk dG dK dc fc hv m/ pm x- xo Tok bt- gls kie l_t psc ssw -tok Az TWI"
).split()
"""Pieces that several literals have, and few texts. Where a text lacks one, none of its literals is looked for: half the time goes."""


def _by_stem() -> dict[str, list[tuple[str, Kind]]]:
    groups: dict[str, list[tuple[str, Kind]]] = {}
    for kind in _KINDS:
        for literal in kind.literals:
            groups.setdefault(next((stem for stem in _STEMS if stem in literal), literal), []).append((literal, kind))
    return groups


_GROUPS = tuple(_by_stem().items())


def secrets_in(text: str) -> Iterator[tuple[int, int, str]]:
    """The positions and kinds of secrets."""
    if len(text) >= _SHORTEST:
        for stem, literals in _GROUPS:
            if stem in text:
                for literal, kind in literals:
                    if literal in text:
                        yield from _of_kind(text, kind, literal)


def split_from_unseen(text: str) -> tuple[str, list[int], list[int]]:
    """A text as it is shown, the places in it where something unseen stood, and how much stood before each, itself included.

    Half a secret, and no form, is left in the text itself: ``grep`` and ``git`` colour what they found.
    """
    places, gone, total = [], [], 0
    for match in _UNSEEN.finditer(text):
        places.append(match.start() - total)
        total += len(match[0])
        gone.append(total)
    return _UNSEEN.sub("", text) if places else text, places, gone


def secrets_named(name: str, text: str) -> Iterator[tuple[int, int, str]]:
    """The positions of secrets in a text whose kind is known from its context."""
    if not name.endswith(_NAMES):
        return
    for kind in _NAMED:
        for literal in filter(name.endswith, kind.literals):
            before = f"{literal}: "
            # One, or several of one header: what stands further on has its literal in the text itself.
            found = _of_kind(before + text, kind, literal)
            for start, end, called in found if kind.each else islice(found, 1):
                # What was found begins in the text itself, not in the name that was put in front of it.
                if start >= len(before):
                    yield start - len(before), end - len(before), called


_LONGEST_REST = 512

_compiled = cache(re.compile)
"""Those that are needed: most kinds are in no text."""


def _of_kind(text: str, kind: Kind, literal: str) -> Iterator[tuple[int, int, str]]:
    rest = _compiled(kind.rest)
    at = text.find(literal)
    while at >= 0:
        after = at + len(literal)
        match = rest.match(text, after) if _may_begin(text, at, kind) else None
        if match is None and kind.name == "jwt":
            # Each part goes up to a dot: what fails from one literal fails from the next one in the same part as well.
            after = _PART.match(text, after).end()  # type: ignore[union-attr]
        if match is not None and (not kind.near or _compiled(kind.near).search(text, max(0, at - NEAR), at)):
            first, last = (match.span("secret")) if "secret" in rest.groupindex else (at - kind.width, match.end())
            if kind.each:
                for part in _compiled(kind.each).finditer(text, first, last):
                    if part["name"].lower() not in _ATTRIBUTES and _is_chosen_by_chance(part["secret"]):
                        yield *part.span("secret"), kind.name
            elif _is_secret(text[first:last], kind):
                yield first, _to_its_quote(text, first, last) if kind.is_strong else last, kind.name
            after = max(match.end(), after)
        at = text.find(literal, after)


def _to_its_quote(text: str, first: int, last: int) -> int:
    """Where a quoted value ends: it may have characters that no pattern takes. One without quotes ends where it did."""
    quote = text[first - 1 : first]
    end = text.find(quote, last, last + _LONGEST_REST) if quote and quote in "\"'`" else -1
    rest = text[last:end] if end >= 0 else ""
    return last if any(map(str.isspace, rest)) else last + len(rest.rstrip("\\"))


def _may_begin(text: str, at: int, kind: Kind) -> bool:
    """True if the text before a literal allows this kind."""
    if not kind.is_anywhere and not _begins_a_word(text, at, kind):
        return False
    return not kind.before or (
        at >= kind.width and _compiled(kind.before).fullmatch(text, at - kind.width, at) is not None
    )


def _begins_a_word(text: str, at: int, kind: Kind) -> bool:
    r"""True if no letter stands before a place, except for those of an escape: ``\nsk-…`` in JSON within a text,
    ``%3Dsk-…`` in a URL, ``\\u003dsk-…``, or a colour. A digit or an underscore may: it is the end of a name, or of a prefix.
    """
    if at == 0 or text[at - 2 : at] in _ESCAPES or _ESCAPED.search(text, max(0, at - _LONGEST_ESCAPE), at):
        return True
    if kind.is_alone and text[at - 1] in "+/-":
        return False
    if not (text[at - 1].isascii() and text[at - 1].isalpha()):
        return True
    return _COLOUR.search(text[max(0, at - _LONGEST_COLOUR) : at]) is not None


def _is_secret(secret: str, kind: Kind) -> bool:
    if kind.is_basic:
        return _is_basic(secret)
    if _PLACEHOLDER.fullmatch(secret):
        return False
    return (
        not (kind.is_random or kind.is_strong)
        or _is_strong(secret)
        or (kind.is_random and _is_chosen_by_chance(secret))
    )


def _is_basic(text: str) -> bool:
    """True if this is ``user:password`` in base64."""
    try:
        return ":" in base64.b64decode(text, validate=True).decode("ascii")
    except ValueError:
        return False


def _is_chosen_by_chance(text: str) -> bool:
    """True if this is not a chosen name such as ``ROCKET_LAUNCHER_0001``: within a word it has a digit, or more capitals
    than one made of words would have.
    """
    words = _BETWEEN_WORDS.split(text)
    if all(word.isdigit() or (word.isalpha() and (word.isupper() or word.islower())) for word in words if word):
        return False
    if any(map(str.isdigit, text)):
        return True
    return _changes(text) > 0.25 * (len(text) - 1)


def _changes(text: str) -> int:
    """How often a capital and another character follow each other."""
    return sum(one.isupper() != other.isupper() for one, other in pairwise(text))


_TELLING = frozenset("!#$%&*@^")
"""Characters of passwords that hardly stand within a name or a word."""
_NO_PASSWORD = re.compile(
    r"[/.~$]|[A-Za-z_]\w*(?:\??\.\w+)+!$|\d+\*|[^@]*@[\w-]+(?:\.[\w-]+)+$|.*(?:://|@sha|\$\w*\{|%[sd]\b|/[^/]*/|[!=]=|&&)"
)
"""A path, a variable, an address, a part of a program."""
_PATH = re.compile(r"[.~]{0,2}/[a-z]{2,}/")
_LEET = re.compile(r"[a-z]\d[a-z]")
"""``Passw0rd``."""
_WORD_OF_A_NAME = re.compile("[a-z]{5}")
_DOTS = re.compile(r"[.:?$&]")


def _is_strong(text: str) -> bool:
    """True if what a telling name is given is a password or a key, and neither a word nor a name of a program. Any of

    - 12 characters with small letters, capitals and two digits: no hash in hex, no id. A part behind a dot, as keys of Zhipu and Bailian
      have it, is as long and has two digits itself;
    - 8 characters with a digit and a telling character; without a digit 12 with two different ones, and both kinds of letters;
    - 12 letters whose capitals are at random, with at most a digit.
    """
    has_small, has_capital = any(map(str.islower, text)), any(map(str.isupper, text))
    first, *others = _DOTS.split(text)
    if _PATH.match(text):
        return False
    if has_small and has_capital and len(first) >= 12 and all(map(_has_two_digits, (text, *others))):
        return _is_chosen_by_chance(text)
    if _NO_PASSWORD.match(text):
        return False
    inner = text.lstrip("".join(_TELLING))
    if not (inner[-2:-1].isdigit() or _LEET.search(inner)):  # "String!" is a type, "2024!" ends a password
        inner = inner.rstrip("".join(_TELLING)) + inner[-1:] * (inner[-1:] == "!" and inner.islower())
    telling = _TELLING.intersection(inner)
    if len(text) < 8:
        return False
    if any(map(str.isdigit, text)):
        if telling - {"@"} or (telling and has_small and has_capital):
            return True
    elif len(text) >= 12 and len(telling) > 1:
        return has_small and has_capital
    if len(text) < 12 or not text.isalnum() or _WORD_OF_A_NAME.search(text):
        return False
    return _changes(text) > 0.4 * (len(text) - 1)


def _has_two_digits(text: str) -> bool:
    return len(text) >= 12 and sum(map(str.isdigit, text)) > 1


# ---- base64 ----
#
# A Secret of Kubernetes, the output of `base64`, a `data:` URL, a command of PowerShell: no form is left in it, but the
# text that it stands for has one.

_BASE64 = re.compile(r"[A-Za-z0-9+/_-]{24,}={0,2}(?:(?<=[A-Za-z0-9+/=]{76})\r?\n[A-Za-z0-9+/]{1,76}={0,2})*")
"""In either alphabet; or in lines of 76 characters, as `base64` and mail programs write them."""
_URL_SAFE = str.maketrans("-_", "+/", "\r\n=")
_FIRST = 32
"""So many characters show that an image or a hash is no text."""
_OF_ASCII = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdef")
"""Each fourth character, if the first one of its three bytes is ASCII. Most names and paths are told from base64 by that."""


def texts_in_base64(text: str) -> Iterator[tuple[int, int, str]]:
    """Where base64 stands whose bytes are a text, in UTF-8 or as PowerShell takes it, and that text."""
    for match in _BASE64.finditer(text):
        start, end = match.span()
        if text[max(0, start - 1) : start + 1] in _ESCAPES:
            start += 1  # the letter of the escape
        first = text[start : min(end, start + _FIRST)]
        is_likely = sum(map(_OF_ASCII.__contains__, first[::4])) >= 6
        if is_likely and _decoded(first) and (said := _decoded(text[start:end])):
            yield start, end, said


def _decoded(characters: str) -> str:
    """The text that base64 stands for, without what was cut off at its end; empty if that is no text."""
    digits = characters.translate(_URL_SAFE)
    digits = digits[: len(digits) - (len(digits) % 4 == 1)]
    data = base64.b64decode(digits + "=" * (-len(digits) % 4))
    said = data.decode("utf-16-le" if data[1:2] == b"\0" else "utf-8", "replace")
    # The last character may be half of one: the text was cut off there.
    return "" if "\ufffd" in said[:-1] else said


# ---- private keys ----
#
# Private keys in a text (PEM, OpenSSH, PGP): whole, or cut off by what showed them.
#
# A key that is shown may have something in front of each line: a number (``     2→MII…``, ``2:MII…``), ``> ``, ``-``, a
# file's name, a time. What stands there is not looked at. A key continues as long as its next line starts near the end
# of the previous one.

_MARK = re.compile(r"-----(BEGIN|END) (?:[A-Z0-9]{1,20} ){0,3}PRIVATE KEY(?: BLOCK)?-----")


def _base64_of(least: int) -> re.Pattern[str]:
    """That many characters of base64, with a capital and a digit among the first ones: a hash in hex has no capital, a word no digit.
    The search starts where such characters begin, not again at each of them.
    """
    a_capital, a_digit = r"(?=[a-z0-9+/=]{0,80}[A-Z])", r"(?=[A-Za-z+/=]{0,80}[0-9])"
    return re.compile(rf"(?<![A-Za-z0-9+/=]){a_capital}{a_digit}[A-Za-z0-9+/=]{{{least},}}+")


_LINE = _base64_of(40)
"""A line of a key of which the end is missing. Programs write 64 to 76 in each but the last."""
_SOME_OF_IT = _base64_of(24)
"""A line between BEGIN and END. A terminal may have wrapped it, but not more narrowly than BEGIN, which is in one line."""
_PIECE = re.compile(r"[A-Za-z0-9+/=]++(?![^\r\n\\\"'])")
"""The last line, or a piece of one, and nothing else in it."""
_FIRST_PIECE = re.compile(r"[\"']?((?=[A-Za-z=]*[0-9+/])[A-Za-z0-9+/=]{1,76}(?:\r?\n|(?:\\r)?\\n))")
"""The rest of the line in which a text was cut, and nothing else before the lines of a key."""
_NUMBER = re.compile(r"[ \d]+")
_NEAR = 240
"""Characters between two lines of a key: what stands in front of a line, a note of what was left out, the headers of an encrypted key."""


def private_keys(text: str) -> Iterator[tuple[int, int, str]]:
    """From each BEGIN to its END. Without one of them, as a command that cuts its output leaves it: all that can belong to the key."""
    begun: re.Match[str] | None = None
    for literal in _MARK.finditer(text):
        if begun is not None and literal[1] == "END":
            if _SOME_OF_IT.search(text, begun.end(), literal.start()):  # else the text only mentions the form
                yield begun.start(), literal.end(), "private-key"
            begun = None
        elif literal[1] == "END":
            yield from _end_of_a_key(text, literal)
        # A second BEGIN without an END between them: the first key was cut off, and what is there of it is a secret
        # too.
        else:
            if begun is not None:
                yield from _cut_key(text, begun)
            begun = literal
    if begun is not None:
        yield from _cut_key(text, begun)


def _cut_key(text: str, begun: re.Match[str]) -> Iterator[tuple[int, int, str]]:
    at = begun.end()
    next_mark = text.find("-----", at)  # of any kind: a certificate may follow
    end = next_mark if next_mark >= 0 else len(text)
    front = ""
    while (line := _LINE.search(text, at, end)) and line.start() - at <= _NEAR:
        front, at = text[at : line.start()], line.end()
    if at > begun.end():  # else the text only mentions the form
        last = _PIECE.match(text, _behind(front, text, at), end)
        yield begun.start(), last.end() if last else at, "private-key"


def _end_of_a_key(text: str, ended: re.Match[str]) -> Iterator[tuple[int, int, str]]:
    """What can belong to the key that ends there, if it begins before the text."""
    before = text.rfind("-----", 0, ended.start())  # of any kind: a certificate may precede
    start = at = None
    for line in _LINE.finditer(text, before + len("-----") if before >= 0 else 0, ended.start()):
        if start is None or at is None or line.start() - at > _NEAR:
            start = line.start()
            start += text[max(0, start - 1) : start + 1] in _ESCAPES  # the letter of the escape
        at = line.end()
    if start is not None and at is not None and ended.start() - at <= _NEAR:
        first = _FIRST_PIECE.fullmatch(text, 0, start)
        yield first.start(1) if first else start, ended.end(), "private-key"


def _behind(front: str, text: str, at: int) -> int:
    """Where a line begins that has the same in front of it as another one, whatever its number is. Without such a line, the text's end."""
    for nth, part in enumerate(_NUMBER.split(front)):
        if nth:
            number = _NUMBER.match(text, at)
            at = number.end() if number else len(text)
        at = at + len(part) if text.startswith(part, at) else len(text)
    return at
