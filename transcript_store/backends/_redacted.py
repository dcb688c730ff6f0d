"""A copy of a conversation without its secrets: a separate conversation, which names the original."""

from __future__ import annotations

import re
from typing import Any

import orjson

from transcript_store._conversation.arguments import Redacting
from transcript_store._json.strict import encode
from transcript_store._log.record import GENESIS, Mark, copied, with_contents
from transcript_store.backends._from_folders import encoded_document
from transcript_store.backends._merging import copy_id, on_medium, rewritten
from transcript_store.backends._restoring import RemoteState, timeless
from transcript_store.errors import KeyNeededError
from transcript_store.redaction import SecretRedactor

_BATCH = re.compile(rb',"batch":\[\d+,\d+\]\Z')
_LOOKED_AT = ("system_prompt", "tools", "labels", "restored_from")
_MOST_BYTES = 2**31


def redacted_copy(standing: RemoteState, redact: SecretRedactor, path: str) -> RemoteState:
    """A history without its secrets, under an id that follows from the original's: more of the original is more of the copy.

    ``forked_from`` names the original's id, and the record and the head in which it ends. Raises ``KeyNeededError`` for one that is
    sealed: its secrets cannot be seen.
    """
    standing = on_medium(standing)
    original = standing.state.conversation
    if standing.state.is_sealed:
        reason = "it is sealed, so its secrets cannot be seen: unseal it, or leave it out"
        raise KeyNeededError(path=path, reason=reason)
    redacting = Redacting(redact, path, _MOST_BYTES)

    def change(members: dict[str, Any], seq: int = 0, head: str = GENESIS.decode()) -> dict[str, Any]:
        fields = {name: members[name] for name in _LOOKED_AT if members.get(name)}
        origin = {"conversation": original, "generation": members["generation"], "seq": seq, "head": head}
        return {**members, **redact.redact(fields).value, "forked_from": origin}

    def without_secrets(body: bytes) -> bytes:
        members = orjson.loads(body + b"}")
        given = tuple(
            None if members.get(name) is None else encode(members[name], name, _MOST_BYTES)
            for name in ("message", "extra")
        )
        ((message, extra, _),) = redacting.entries([(given[0], given[1], None)])
        if (message, extra) == given:
            return body
        record, batch = copied(body), _BATCH.search(body)
        made = with_contents(record, message, extra)
        return b'{"seq":%d%b%b' % (members["seq"], made.members, batch[0] if batch else b"")

    made = rewritten(standing, copy_id(original, "redacted"), change, path, without_secrets)
    end = standing.state.end
    members = {**change(standing.state.members, end.seq, end.head.decode()), "id": made.state.conversation}
    document = encoded_document(members, Mark(made.state.generation, made.state.end))
    return made._replace(
        state=made.state._replace(members=members), earlier_metadata=frozenset({timeless(members)}), document=document
    )
