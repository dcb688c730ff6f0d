"""Find secrets in conversations, by part, and remove them from a library.

.. code-block:: python

    from transcript_store.secrets import find_secrets, forget_secrets

    for found in find_secrets("chats"):
        print(found.directory, found.part, found.generation, dict(found.counts))
    for forgotten in forget_secrets("chats"):
        print(forgotten.directory, forgotten.part, forgotten.generation, forgotten.reason)

Neither ever returns a secret. A :class:`~transcript_store.redaction.SecretRedactor` defines what a secret is.
"""

from __future__ import annotations

from transcript_store.secrets._finding import (
    ForgottenSecrets,
    FoundSecrets,
    find_secrets,
    find_secrets_in_snapshots,
    forget_secrets,
    keeping_what_was_redacted,
)

__all__ = [
    "ForgottenSecrets",
    "FoundSecrets",
    "find_secrets",
    "find_secrets_in_snapshots",
    "forget_secrets",
    "keeping_what_was_redacted",
]
