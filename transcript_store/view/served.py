"""What a server of pages needs besides ``render_page``: pages that grow, and pages of its own made in the same safe way.

:mod:`transcript_store.serving` is that server. The extra ``view`` has what is needed.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any

from transcript_store.conversation import ConversationStore
from transcript_store.view._contents import contents_of, contents_of_store
from transcript_store.view._excerpt import excerpt
from transcript_store.view._head import asset, head, policy
from transcript_store.view._html import Html, joined, tag
from transcript_store.view._live import Change, LiveConversation, Position
from transcript_store.view._page import Served, page, script_of
from transcript_store.view._times import clock, day, full

__all__ = [
    "Change",
    "Html",
    "LiveConversation",
    "Position",
    "Served",
    "clock",
    "day",
    "document",
    "excerpt",
    "full",
    "joined",
    "policies",
    "still_page",
    "tag",
]


def still_page(
    source: str | os.PathLike[str] | ConversationStore,
    *,
    generation: int | None,
    served: Served,
    keys: Mapping[str, Any] | None = None,
) -> Iterator[bytes]:
    """The page of a conversation that nothing is added to: of an earlier generation, or of a damaged one.

    ``source`` is its folder, and ``keys`` has the arguments ``encryption_key`` and ``retired_keys`` of the store, if it is sealed. Or it is
    a store that reads and is not loaded yet: then it is closed on return, and damage is raised.

    Raises:
        GenerationNotFoundError: there is no such generation.
        TranscriptStoreError: as :func:`transcript_store.salvage`.
    """
    if not isinstance(source, ConversationStore):
        return page(contents_of(source, generation=generation, redact=None, keys=keys or {}), served=served)
    with source:
        source.load()
        return page(contents_of_store(source, generation=generation), served=served)


def document(title: str, *body: Html) -> bytes:
    """A page of the server's own: it has the style of the others, and the script ``library.js``."""
    script = Html(asset("library.js"))
    top = tag("head", *head(title, script, is_served=True))
    page = joined(top, tag("body", *body, tag("script", script), class_="library"))
    return joined(Html("<!doctype html>"), tag("html", page, lang="en")).encode()


def policies() -> dict[str, str]:
    """The policy of each kind of page, to be sent with it: ``live``, ``still`` and ``library``."""
    scripts = {"live": script_of(True), "still": script_of(False), "library": asset("library.js")}
    return {kind: policy(script, is_served=True) for kind, script in scripts.items()}
