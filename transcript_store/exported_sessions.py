"""Sessions that an export wrote into another program's folder, known again by their own bytes: nothing is kept of them anywhere.

The id of such a session is a hash of its file (a UUID of version 5), so a file that still is what an export wrote can be known from one
that the program went on with. Ids stand in the file itself, and others are made of them; so the hash is of the file without its ids.
"""

from __future__ import annotations

import hashlib
import re
import uuid

_NAMESPACE = uuid.UUID("0d1f5b0c-6f0f-5b7e-8f55-3c1a86b0a3e4")
_ID = re.compile(rb"[0-9a-f-]{16,}")
"""Ids are written with dashes and without, whole and cut: all of them are such a run."""
MOST = 64
"""The same conversation can be exported so often."""


def session_id(data: bytes, number: int) -> str:
    """The id of a session whose file has these bytes, whatever its ids are; ``number`` tells equal exports apart."""
    return str(uuid.uuid5(_NAMESPACE, f"{number} {hashlib.sha256(_ID.sub(b'', data)).hexdigest()}"))


def is_as_exported(session: str, data: bytes) -> bool:
    """Whether an export wrote this session, and nothing was changed in its file since."""
    if len(session) != 36 or session[14] != "5":
        return False
    return any(session == session_id(data, number) for number in range(MOST))
