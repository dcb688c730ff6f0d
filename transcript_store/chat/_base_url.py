"""Where credentials may go: the rules that a provider's base URL must pass before a token leaves the process.

The rules and their order are those of go-tool-base's ``ValidateBaseURL``, stricter where that one is careless
(DECISIONS.md lists each difference). No message ever repeats the URL or a part of it: what was pasted into the wrong field is often
a token.
"""

from __future__ import annotations

import ipaddress
import re
from urllib.parse import SplitResult, urlsplit

from transcript_store.errors import InvalidBaseUrlError
from transcript_store.ways_out import WayOut

MAX_BASE_URL_LENGTH = 2048
"""The most bytes of UTF-8 that a base URL may take."""

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_SURROGATE = re.compile(r"[\ud800-\udfff]")
_LABEL = re.compile(r"[A-Za-z0-9_-]{1,63}")
_PORT = re.compile(r"[0-9]{1,5}")
_BROKEN_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")
_NOT_HTTPS = "its scheme must be https"
_PLACEHOLDERS = ("example.com", "example.net", "example.org", "localhost.localdomain")


def validate_base_url(url: str, *, allow_insecure: bool = False) -> None:
    """Check that a provider's credentials may be sent to this URL; the empty string means the provider's own.

    The cheapest rule comes first: at most ``MAX_BASE_URL_LENGTH`` bytes; no control characters; no lone surrogates (what
    Python makes of a variable or an argument that is not UTF-8); a URL at all, with two hexadecimal digits behind each
    ``%`` of its path and fragment, an ASCII host name (an internationalized one in its ``xn--`` form) or address, no empty
    label and a port from 1 to 65535; no
    user information; https, or http too with ``allow_insecure=True``; a host; not a placeholder host from some documentation
    (example.com, .net, .org, localhost.localdomain, and everything below them).

    Raises ``InvalidBaseUrlError`` with the ``reason``. The error never repeats the URL.
    """
    if not isinstance(url, str):
        raise TypeError(f"a base URL is a str, not {type(url).__name__}")
    if reason := _fault(url, allow_insecure):
        is_for_http = reason == _NOT_HTTPS
        raise InvalidBaseUrlError(reason=reason, way_out=WayOut.ALLOW_INSECURE if is_for_http else None)


def host_of(url: str) -> str:
    """The host name of a URL that passed ``validate_base_url``, lower-case, without port and trailing dot."""
    return (urlsplit(url).hostname or "").removesuffix(".")


def is_loopback(host: str) -> bool:
    """Whether a host is this machine."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _fault(url: str, allow_insecure: bool) -> str | None:
    if len(encoded := url.encode("utf-8", "surrogatepass")) > MAX_BASE_URL_LENGTH:
        return f"it takes {len(encoded):,} bytes, and {MAX_BASE_URL_LENGTH:,} are allowed"
    if not url:
        return None
    if _CONTROL.search(url):
        return "it contains control characters"
    if _SURROGATE.search(url):
        return "it holds a lone surrogate, which no request can carry"
    parts = _split(url)
    if parts is None:
        return "it cannot be parsed"
    if _BROKEN_ESCAPE.search(parts.path) or _BROKEN_ESCAPE.search(parts.fragment):
        return "it cannot be parsed: a % in it is not followed by two hexadecimal digits"
    _, at, authority = parts.netloc.rpartition("@")
    if at:
        return "it contains user information; a token belongs into the token field"
    if parts.scheme == "http" and not allow_insecure:
        return _NOT_HTTPS
    if parts.scheme not in ("http", "https"):
        return "its scheme must be https"
    if not authority or authority.startswith(":"):
        return "it has no host"
    host = _host(authority)
    if host is None:
        return "its host or port cannot be parsed"
    if any(host == name or host.endswith("." + name) for name in _PLACEHOLDERS):
        return "its host is a placeholder from some documentation; replace it by your provider's"
    return None


def _split(url: str) -> SplitResult | None:
    if url != url.strip():
        return None  # urlsplit would strip it, and what is sent would not be what was checked
    try:
        return urlsplit(url)
    except ValueError:
        return None


def _host(authority: str) -> str | None:
    """The host of ``host[:port]``, lower-case and without its trailing dot; None if either is not well-formed."""
    if authority.startswith("["):
        address, bracket, rest = authority[1:].partition("]")
        if not bracket or (rest and not rest.startswith(":")):
            return None
        try:
            ipaddress.IPv6Address(address)
        except ValueError:  # from Python 3.11.4 on urlsplit sees to that
            return None
        host, colon, port = address, rest[:1], rest[1:]
    else:
        host, colon, port = authority.partition(":")
        host = host.removesuffix(".").lower()
        if not all(_LABEL.fullmatch(label) for label in host.split(".")):
            return None
    if colon and not (_PORT.fullmatch(port) and 1 <= int(port) <= 65_535):
        return None
    return host
