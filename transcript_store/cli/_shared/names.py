"""How the commands name a conversation to a person."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from transcript_store import ConversationSummary
from transcript_store.cli._shared.places import is_address
from transcript_store.cli._shared.terminal import fitting, many, one_line, size
from transcript_store.cli._shared.terminal import time as moment_of

_LONGEST = 60
"""In columns: of a name in a sentence."""


def called(summary: ConversationSummary, **keys: Any) -> str:
    """The name of a conversation: its title, else its first prompt, else its program and when it began. ``keys`` open a sealed one."""
    from transcript_store.naming import name_at, name_of  # needs the formats, and most commands name nothing

    return name_of(summary) if is_address(summary.directory) else name_at(summary, **keys)


def project_of(labels: Mapping[str, str]) -> str:
    """The folder that a conversation was held in, by its last name."""
    return one_line(os.path.basename(labels.get("cwd", "").rstrip("/")))


def described(summary: ConversationSummary, **keys: Any) -> str:
    """A conversation in a sentence, to tell it from others: its name, its folder, how much it is and when something was last said."""
    facts = (
        one_line(os.path.basename(summary.directory)),
        None if summary.record_count is None else many(summary.record_count, "record"),
        None if summary.size_bytes is None else size(summary.size_bytes),
        None if summary.updated_at is None else moment_of(summary.updated_at),
    )
    return f"“{fitting(one_line(called(summary, **keys)), _LONGEST)}” ({', '.join(filter(None, facts))})"
