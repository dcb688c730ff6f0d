"""Which backend does an address name?"""

from __future__ import annotations

import os
from urllib.parse import SplitResult, urlsplit

from transcript_store.backends._backend import Backend
from transcript_store.display import printable_address

__all__ = ["open_backend"]

_POSTGRES = frozenset({"postgresql", "postgres"})
_OBJECTS = frozenset({"s3", "s3a", "gs", "az", "adl", "azure", "abfs", "abfss", "memory"})


def open_backend(url: str, *, create: bool = False) -> Backend:
    """Open the backend at an address, as written in an environment variable or on a command line.

    ``postgresql://user@host/database`` is a :class:`PostgresBackend`; ``?schema=copies`` after it names a schema, and
    so another library in the same database. ``s3://bucket/prefix``, ``gs://…`` and ``az://…`` are an
    :class:`ObjectStoreBackend`. What the address leaves out comes from the environment, as in the client libraries:
    ``PGPASSWORD``, ``AWS_ACCESS_KEY_ID``, ``AWS_ENDPOINT`` … Nothing connects yet. Errors name the backend by its
    address without the user, the password and the options.

    Args:
        url: the address.
        create: create the tables of a database if they are missing, or update those of an earlier version.

    Raises:
        ValueError: no backend has such an address, or it is malformed. The text repeats only the scheme.
        MissingExtraError: the backend's client library is not installed; the message says what to install.
        BackendError: an object store cannot be used with this address and environment.
    """
    try:
        parts = urlsplit(url)
    except ValueError:
        raise ValueError("this is not a backend's address: it cannot be parsed") from None
    if parts.scheme in _POSTGRES:
        _require_an_end(parts, printable := printable_address(url))
        from transcript_store.backends._postgres import PostgresBackend

        return PostgresBackend(url, create=create, name=_named(f"postgresql{printable[len(parts.scheme) :]}"))
    if parts.scheme in _OBJECTS:
        from transcript_store.backends._objects import ObjectStoreBackend

        return ObjectStoreBackend(url)
    reason = f"there is no backend for {parts.scheme}://" if parts.scheme else "it has no scheme"
    raise ValueError(f"this is not a backend's address: {reason}; use postgresql://, s3://, gs:// and az://")


def _named(address: str) -> str:
    """The name of a database, completed from the environment if the address has no host or no database."""
    scheme, _, rest = address.partition("://")
    host_and_database, mark, options = rest.partition("?")
    host, _, database = host_and_database.partition("/")
    host, database = host or os.environ.get("PGHOST", ""), database or os.environ.get("PGDATABASE", "")
    return f"{scheme}://{host}{'/' if database else ''}{database}{mark}{options}"


def _require_an_end(parts: SplitResult, printable: str) -> None:
    """Raise for an ambiguous address: libpq would try the user's name as a host, and time out after half a minute.

    It knows where a password ends that holds ``?`` or ``#``, so that is passed.
    """
    if printable.endswith("://…") and "@" not in parts.query + parts.fragment:
        raise ValueError(
            "this is not a backend's address: the end of its password is ambiguous, or its port is not a number; in a user and a password "
            "write each character but letters and digits as %2F (for /), %40 (for @), %3A (for :) …"
        )
