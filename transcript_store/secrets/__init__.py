"""Which conversations hold secrets, in which of their parts, and how the secrets are removed from a library.

.. code-block:: python

    from transcript_store.secrets import find_secrets, forget_secrets

    for found in find_secrets("chats"):
        print(found.directory, found.part, found.generation, dict(found.counts))
    for forgotten in forget_secrets("chats"):
        print(forgotten.directory, forgotten.part, forgotten.generation, forgotten.reason)

Neither says what a secret is. What is a secret, a :class:`~transcript_store.redaction.SecretRedactor` says.
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
