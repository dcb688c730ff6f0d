"""Where a token may go. The tables are the Go program's own verdicts; where we are stricter, the case says why.

Incident elsewhere: a token pasted into the URL field stood in the error message, and from there in a bug report. So no error
here repeats anything of a URL.
"""

from __future__ import annotations

import json
import logging
import pickle
import re
from contextlib import nullcontext
from ipaddress import ip_address
from typing import Any
from unicodedata import category

import httpx2
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.chat.conftest import connect
from tests.chat.dialects import DIALECTS, Dialect
from tests.chat.server import Server
from tests.kit.cases import for_each
from tests.kit.vectors import VECTORS
from transcript_store.chat import MAX_BASE_URL_LENGTH, ChatConfig, create_client, validate_base_url
from transcript_store.errors import InvalidBaseUrlError
from transcript_store.hints import Hint

STRICTER = {
    "https://example.com.": "a trailing dot does not make a placeholder real",
    "https://host:99999/": "no port is above 65535",
    "https://host\u2028/": "a host name that is not ASCII is given in its xn-- form",
    "https://.": "a host name has labels",
    "https://a..b/": "no label is empty",
}
"""What the Go program accepts and we refuse."""


def table(name: str) -> list[Any]:
    rows: list[Any] = json.loads((VECTORS / name).read_text())
    return rows


def accepted(url: str, *, allow_insecure: bool = False) -> bool:
    try:
        validate_base_url(url, allow_insecure=allow_insecure)
    except InvalidBaseUrlError:
        return False
    return True


@for_each("row", table("validate_url.json"))
def test_the_go_table(row: dict[str, Any]) -> None:
    """We accept what the Go program accepts and nothing else, except the differences that are listed."""
    assert accepted(row["in"]) == (row["ok"] and row["in"] not in STRICTER)


@for_each("row", table("validate_url_insecure.json"))
def test_the_go_table_with_allow_insecure(row: dict[str, Any]) -> None:
    """``allow_insecure`` lets http through, and nothing else."""
    assert accepted(row["in"], allow_insecure=True) == (row["ok"] and row["in"] not in STRICTER)


@for_each(
    "url, reason",
    [
        ("https://host/" + "a" * MAX_BASE_URL_LENGTH + "\x00", "bytes"),
        ("https://u:p@h\x00ost/", "control"),
        ("https://host/\x80", "control"),
        ("https://host/\x9b31m\udc80", "control"),
        ("https://u:p@host/\udc80", "surrogate"),
        ("https://host/\ud83d", "surrogate"),
        ("https://ho\udfffst/", "surrogate"),
        ("https://u:p@[::1/", "parsed"),
        (" https://host/", "parsed"),
        ("ftp://u:p@host/", "user information"),
        ("https://:p@host/", "user information"),
        ("ftp:///", "scheme"),
        ("http://host/", "https"),
        ("https:///v1", "no host"),
        ("https:host/v1", "no host"),
        ("https://:443/", "no host"),
        ("https://[::1]x/", "host or port|cannot be parsed"),
        ("https://[fe80::g]/", "parsed"),
        ("https://host:/", "host or port"),
        ("https://host:0/", "host or port"),
        ("https://host:1e3/", "host or port"),
        ("https://host:\u0663/", "host or port"),
        ("https://host\\.evil.test/", "host or port"),
        ("https://b\u00fccher.test/", "host or port"),
        ("https://" + "a" * 64 + ".test/", "host or port"),
        ("https://EXAMPLE.com./", "placeholder"),
        ("https://a.b.Example.ORG:443/v1", "placeholder"),
        ("https://x.localhost.localdomain./", "placeholder"),
    ],
)
def test_the_cheapest_rule_comes_first(url: str, reason: str) -> None:
    """Each rule by its reason; a URL that breaks several is refused for the one that is cheapest to see."""
    with pytest.raises(InvalidBaseUrlError, match=reason) as caught:
        validate_base_url(url)
    assert pickle.loads(pickle.dumps(caught.value)).reason == caught.value.reason


@for_each("url", ["https://notexample.com/", "https://example.com.au/", "https://[2001:db8::1]/", "https://h:65535"])
def test_what_only_looks_like_a_placeholder(url: str) -> None:
    validate_base_url(url)


@pytest.mark.parametrize(
    ("url", "is_taken"),
    [
        ("https://host/%zz", False),
        ("https://host#%", False),
        ("https://host/a%2", False),
        ("https://host/%u1234", False),
        ("https://host/#%4", False),
        ("https://host/%2F%c3%28#%41", True),
        ("https://host/?q=%zz", True),
        ("https://host/?%#%41", True),
    ],
)
def test_broken_percent_escapes(url: str, is_taken: bool) -> None:
    """The Go program's own verdicts: it unescapes path and fragment, and passes over the query.

    Incident: ``https://host/%zz`` was accepted, and the HTTP library sent another path than the one that was checked.
    """
    assert accepted(url) == is_taken
    if not is_taken:
        with pytest.raises(InvalidBaseUrlError, match="parsed: a % in it"):
            validate_base_url(url.replace("host", "user:password@host"))


HOSTS = st.one_of(
    st.sampled_from(
        ["api.openai.com", "example.com", "EXAMPLE.net.", "a.example.org", "[::1]", "localhost.localdomain", "1.2.3.4"]
    ),
    st.text(st.sampled_from("ab.-_:[]@%\\ é\u3002\uff0e"), max_size=12),
)
URLS = st.one_of(
    st.text(max_size=40),
    st.builds(
        lambda scheme, user, host, port, rest: f"{scheme}{user}{host}{port}{rest}",
        st.sampled_from(["https://", "http://", "HTTPS://", "//", "https:/", "ftp://", " https://", "https:\\\\"]),
        st.sampled_from(["", "user@", "user:pass@", "@", "%40@"]),
        HOSTS,
        st.sampled_from(["", ":", ":0", ":443", ":65535", ":65536", ":+1", ":1_0"]),
        st.one_of(st.just(""), st.text(max_size=10).map("/".__add__), st.sampled_from(["/\x80", "/\udc80", "?q@h", "#f@h", "/a b", "/%zz", "#%", "/%2f", "\\@evil.test/"])),
    ),
)  # fmt: skip


@given(URLS, st.booleans())
@example("https://example\u3002com/", False)
@example("https://host#@evil", False)
def test_nothing_accepted_breaks_a_rule(url: str, allow_insecure: bool) -> None:
    """What is accepted is read by the HTTP library as we read it: https, a real host, no user information."""
    if not url or not accepted(url, allow_insecure=allow_insecure):
        return
    parsed = httpx2.URL(url)
    assert parsed.scheme == "https" or (allow_insecure and parsed.scheme == "http")
    assert parsed.host
    assert not parsed.userinfo
    assert parsed.port is None or 1 <= parsed.port <= 65_535
    host = parsed.host.lower().removesuffix(".")
    assert all(host.split(".")) or ip_address(host)
    for name in ("example.com", "example.net", "example.org", "localhost.localdomain"):
        assert host != name
        assert not host.endswith("." + name)
    assert len(url.encode()) <= MAX_BASE_URL_LENGTH
    assert not re.search("%(?![0-9a-fA-F]{2})", re.sub(r"\?[^#]*", "", url, count=1))
    assert not any(category(character) in ("Cc", "Cs") for character in url)


@given(URLS.filter(lambda url: len(url) > 3))
def test_no_error_repeats_a_url(url: str) -> None:
    """Neither the message nor what stands behind it holds the URL, or the part behind its scheme."""
    try:
        validate_base_url("https://canary:canary@" + url)
    except InvalidBaseUrlError as error:
        chain: BaseException | None = error
        while chain is not None:
            assert "canary" not in f"{chain!s}{chain!r}{chain.args}"
            chain = chain.__cause__ or chain.__context__


ENVIRONMENT = {
    "claude": ("ANTHROPIC_BASE_URL", "ANTHROPIC_API_KEY"),
    "openai": ("OPENAI_BASE_URL", "OPENAI_API_KEY"),
    "openai-compatible": ("OPENAI_BASE_URL", "OPENAI_API_KEY"),
    "gemini": ("GOOGLE_GEMINI_BASE_URL", "GEMINI_API_KEY"),
}


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize("provider", ENVIRONMENT)
def test_a_url_from_the_environment_passes_the_same_rules(
    provider: Any, monkeypatch: pytest.MonkeyPatch, server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    """One that breaks a rule is refused before anything is sent; a good one is used, and no variable can allow http."""
    url_variable, token_variable = ENVIRONMENT[provider]
    monkeypatch.setenv(token_variable, "sk-canary")
    for bad in ("http://host.test/", "https://u:p@host.test/", "https://api.example.com/"):
        monkeypatch.setenv(url_variable, bad)
        with pytest.raises(InvalidBaseUrlError):
            create_client(ChatConfig(provider=provider))
    monkeypatch.setenv(url_variable, server.url)
    server.answers += [DIALECTS[provider].reply("From the test server.")]
    with caplog.at_level(logging.INFO, "transcript_store"):
        client: Any = create_client(ChatConfig(provider=provider), allow_insecure_base_url=True)
    with client:
        assert client.chat("Hi") == "From the test server."
    assert "sk-canary" in str(server.requests[0].headers)
    ours = [r.getMessage() for r in caplog.records if r.name.startswith("transcript_store")]
    assert ours == [f"{provider}: requests go to 127.0.0.1"]


def test_a_compatible_server_needs_a_url() -> None:
    """There is no server that a token for some other provider could go to unasked."""
    with pytest.raises(InvalidBaseUrlError, match="needs one"):
        create_client(ChatConfig(provider="openai-compatible", token="sk-canary"))


def test_a_redirect_is_not_followed(dialect: Dialect, server: Server) -> None:
    """A server cannot send the token on to another one: the SDKs follow redirects unless they are told not to."""
    from tests.chat.server import Answer, serving

    with serving() as elsewhere:
        server.answers += [Answer(b"{}", status=307, headers={"Location": elsewhere.url + "/v1/messages"})] * 3
        elsewhere.answers += [dialect.reply("stolen")] * 3
        client = connect(dialect, server)
        with pytest.raises(Exception, match=r"(?i)307|redirect"):
            client.chat("Hi")
        assert elsewhere.requests == []


@pytest.mark.parametrize(("url", "hint"), [("http://host.test/", Hint.ALLOW_INSECURE), ("ftp://host.test/", None)])
def test_only_http_can_be_allowed(url: str, hint: Hint | None) -> None:
    """Another scheme was told to allow what is insecure, and refused again."""
    with pytest.raises(InvalidBaseUrlError) as caught:
        validate_base_url(url)
    assert caught.value.hint == hint
    with nullcontext() if hint else pytest.raises(InvalidBaseUrlError):
        validate_base_url(url, allow_insecure=True)
