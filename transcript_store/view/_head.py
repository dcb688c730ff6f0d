"""The head of a page: its policy (CSP), its only style, and the hash of its only script."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator, Mapping
from functools import cache

from transcript_store.view._html import Html, tag

_POLICY_NAME = "Content-Security-Policy"


def head(title: str, script: Html, *, is_served: bool = False) -> Iterator[Html]:
    """What stands in ``<head>``, for a page that runs this script."""
    yield tag("meta", charset="utf-8")
    yield tag("meta", http_equiv=_POLICY_NAME, content=policy(script, is_served=is_served))
    yield tag("meta", name="referrer", content="no-referrer")
    yield tag("meta", name="viewport", content="width=device-width, initial-scale=1")
    yield tag("meta", name="color-scheme", content="light dark")
    yield tag("link", rel="icon", href="data:,")
    yield tag("title", title)
    yield tag("style", Html(asset("page.css")))


def policy(script: str, *, is_served: bool) -> Html:
    """The policy of a page that runs this script alone. One that is served may ask its own server, and nobody else."""
    rules: Mapping[str, str] = {
        "default-src": "'none'",
        "script-src": f"'sha256-{_hash(script)}'",
        "style-src": f"'sha256-{_hash(asset('page.css'))}'",
        "img-src": "data:",
        **({"connect-src": "'self'"} if is_served else {}),
        "base-uri": "'none'",
        "form-action": "'self'" if is_served else "'none'",
        "require-trusted-types-for": "'script'",
        "trusted-types": "page",
    }
    return Html("; ".join(f"{name} {value}" for name, value in rules.items()))


@cache
def asset(name: str) -> str:
    """A file of ``assets/``."""
    from importlib.resources import files  # here: it imports tempfile, and `show` needs no asset

    return files("transcript_store.view").joinpath("assets", name).read_text("utf-8")


@cache
def _hash(said: str) -> str:
    return base64.b64encode(hashlib.sha256(said.encode()).digest()).decode()
