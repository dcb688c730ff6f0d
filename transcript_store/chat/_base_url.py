"""The rules that a provider's base URL must pass before a token is sent to it.

The rules and their order come from go-tool-base's ``ValidateBaseURL``. Refused here and accepted there: white space around the URL;
lone surrogates, and the C1 control characters; a port that is empty, 0 or above 65535; an empty label (``https://a..b/``); a placeholder
with a trailing dot; a host name with anything but ASCII letters, digits, ``-`` and ``_``, because under IDNA a full stop has four
spellings. No error message repeats the URL or a part of it, because users often paste a token into the wrong field.
"""

from __future__ import annotations

import ipaddress
import re
from urllib.parse import SplitResult, urlsplit

from transcript_store.errors import InvalidBaseUrlError
from transcript_store.ways_out import WayOut

MAX_BASE_URL_LENGTH = 2048
"""The greatest length of a base URL, in bytes of UTF-8."""

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_SURROGATE = re.compile(r"[\ud800-\udfff]")
_LABEL = re.compile(r"[A-Za-z0-9_-]{1,63}")
_PORT = re.compile(r"[0-9]{1,5}")
_BROKEN_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")
_NOT_HTTPS = "its scheme must be https"
_PLACEHOLDERS = ("example.com", "example.net", "example.org", "localhost.localdomain")


def validate_base_url(url: str, *, allow_insecure: bool = False) -> None:
    """Check that a provider's credentials may be sent to this URL.

    The empty string is valid; it stands for the provider's own URL. Any other URL must pass these rules, in this order:

    * It has at most ``MAX_BASE_URL_LENGTH`` bytes of UTF-8.
    * It contains no control characters.
    * It contains no lone surrogates. Python makes them from arguments and variables that are not UTF-8.
    * It can be parsed. In its path and fragment, two hexadecimal digits follow each ``%``.
    * It contains no user information.
    * Its scheme is https. With ``allow_insecure=True`` it may also be http.
    * It has a host: an address, or an ASCII name without empty labels. An internationalized name is in its ``xn--`` form.
    * Its port, if it has one, is from 1 to 65535.
    * Its host is not a placeholder from documentation: example.com, example.net, example.org, localhost.localdomain, and
      every name below them.

    Raises:
        InvalidBaseUrlError: the URL breaks a rule, and ``reason`` says which. The error does not contain the URL.
        TypeError: the URL is not a str.
    """
    if not isinstance(url, str):
        raise TypeError(f"a base URL is a str, not {type(url).__name__}")
    if reason := _fault(url, allow_insecure):
        is_for_http = reason == _NOT_HTTPS
        raise InvalidBaseUrlError(reason=reason, way_out=WayOut.ALLOW_INSECURE if is_for_http else None)


def host_of(url: str) -> str:
    """The host of a URL that passed ``validate_base_url``, in lower case, without port and trailing dot."""
    return (urlsplit(url).hostname or "").removesuffix(".")


def is_loopback(host: str) -> bool:
    """Whether a host is this machine: ``localhost``, or a loopback address (127.0.0.0/8, ::1)."""
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
        return "it is no https URL: its scheme must be https"
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
        return None  # urlsplit() strips white space: the URL that is sent would not be the URL that was checked
    try:
        return urlsplit(url)
    except ValueError:
        return None


def _host(authority: str) -> str | None:
    """The host in ``host[:port]``, in lower case, without its trailing dot. None if host or port is malformed."""
    if authority.startswith("["):
        address, bracket, rest = authority[1:].partition("]")
        if not bracket or (rest and not rest.startswith(":")):
            return None
        try:
            ipaddress.IPv6Address(address)
        except ValueError:  # since Python 3.11.4, urlsplit() refuses such a URL itself
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
