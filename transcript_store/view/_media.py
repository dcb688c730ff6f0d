"""Images that are in the transcript itself. Nothing else is shown: it is named, and fetched by nobody."""

from __future__ import annotations

import base64
import binascii
from urllib.parse import urlsplit

from transcript_store.formats import Media
from transcript_store.view._html import Html, joined, tag

_SIGNATURES = {
    "image/png": b"\x89PNG\r\n\x1a\n",
    "image/jpeg": b"\xff\xd8\xff",
    "image/gif": b"GIF8",
    "image/webp": b"RIFF",
}


def media(block: Media) -> Html:
    """The image, if its first bytes say that it is one; else what it claims to be, and where it is."""
    data = _bytes(block.data)
    if data is not None and (kind := _kind(data)) is not None:
        encoded = base64.b64encode(data).decode()
        image = tag("img", src=Html(f"data:{kind};base64,{encoded}"), alt="image in the conversation", loading="lazy")
        return tag("button", image, class_="image", type="button", aria_label="image, show its full size")
    if block.url is not None:
        parts = _split(block.url)
        if parts is not None:
            rel = "noopener noreferrer nofollow"
            link = tag("a", block.url, href=block.url, rel=rel, class_="remote")
            return tag("p", f"{block.type} at {parts}, not fetched: ", link, class_="media")
        return tag("p", f"{block.type}: {block.url[:200]}", class_="media")
    size = f"{len(data):,} bytes" if data is not None else "no base64"
    lies = ", and no image by its first bytes" if block.type.startswith("image/") and data is not None else ""
    return tag("p", joined(f"{block.type}, {size}{lies}: not shown"), class_="media")


def _bytes(data: str | None) -> bytes | None:
    try:
        return None if data is None else base64.b64decode("".join(data.split()), validate=True)
    except (binascii.Error, ValueError):
        return None


def _kind(data: bytes) -> str | None:
    for kind, signature in _SIGNATURES.items():
        if data.startswith(signature) and (kind != "image/webp" or data[8:12] == b"WEBP"):
            return kind
    return None


def _split(url: str) -> str | None:
    """The host of an address that may be a link; None for any other."""
    try:
        parts = urlsplit(url)
        return parts.hostname if parts.scheme in ("http", "https") else None
    except ValueError:
        return None
