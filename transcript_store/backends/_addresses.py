"""A place by its address."""

from __future__ import annotations

import os
from urllib.parse import SplitResult, urlsplit

from transcript_store.backends._backend import Backend
from transcript_store.display import printable_address

__all__ = ["open_backend"]

_POSTGRES = frozenset({"postgresql", "postgres"})
_OBJECTS = frozenset({"s3", "s3a", "gs", "az", "adl", "azure", "abfs", "abfss", "memory"})


def open_backend(url: str, *, create: bool = False) -> Backend:
    """The place at an address, as it stands in a variable of the environment or on a command line.

    ``postgresql://user@host/database`` is a :class:`PostgresBackend`; ``?schema=copies`` behind it names a schema, and so another
    library in the same database. ``s3://bucket/prefix``, ``gs://…`` and ``az://…`` are an
    :class:`ObjectStoreBackend`. What the address does not say comes from the environment, as the client libraries have it: ``PGPASSWORD``,
    ``AWS_ACCESS_KEY_ID``, ``AWS_ENDPOINT`` … Nobody is asked for anything yet. Errors call the place by its address without the user,
    the password and the options.

    Args:
        url: the address.
        create: make the tables of a database when they are missing, or of an earlier version.

    Raises:
        ValueError: no engine has such an address, or it is malformed. Its text repeats the scheme and nothing else.
        MissingExtraError: what talks to the engine is not installed; the message says what to install.
        BackendError: an object store cannot be used with what the address and the environment say.
    """
    try:
        parts = urlsplit(url)
    except ValueError:
        raise ValueError("this is no address of a place: it cannot be taken apart") from None
    if parts.scheme in _POSTGRES:
        _require_an_end(parts, told := printable_address(url))
        from transcript_store.backends._postgres import PostgresBackend

        return PostgresBackend(url, create=create, name=_named(f"postgresql{told[len(parts.scheme) :]}"))
    if parts.scheme in _OBJECTS:
        from transcript_store.backends._objects import ObjectStoreBackend

        return ObjectStoreBackend(url)
    reason = f"there is no engine for {parts.scheme}://" if parts.scheme else "it has no scheme"
    raise ValueError(f"this is no address of a place: {reason}; there are postgresql://, s3://, gs:// and az://")


def _named(address: str) -> str:
    """The name of a database, with what the environment adds to an address that names no host or no database."""
    scheme, _, rest = address.partition("://")
    place, mark, options = rest.partition("?")
    host, _, database = place.partition("/")
    host, database = host or os.environ.get("PGHOST", ""), database or os.environ.get("PGDATABASE", "")
    return f"{scheme}://{host}{'/' if database else ''}{database}{mark}{options}"


def _require_an_end(parts: SplitResult, told: str) -> None:
    """Libpq would look for a host that is called as the user is, and say half a minute later that nobody answers.

    It knows where a password ends that holds ``?`` or ``#``, so that is passed.
    """
    if told.endswith("://…") and "@" not in parts.query + parts.fragment:
        raise ValueError(
            "this is no address of a place: it cannot be told where its password ends, or its port is no number; in a user and a password "
            "each sign that is no letter or digit is written as %2F (for /), %40 (for @), %3A (for :) …"
        )
