"""How are connections to PostgreSQL managed? Few, opened on demand, returned clean or closed, and never used by a
forked child.

A server's errors contain addresses, users and values. None of that leaves this module: our errors name only the class.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from hashlib import sha256
from typing import Any, TypeVar

import psycopg
from psycopg.conninfo import conninfo_to_dict

from transcript_store.backends._backend import BackendError, BackendUnreachableError, OutcomeUnknownError

_WHERE = {
    "host": "PGHOST",
    "hostaddr": "PGHOSTADDR",
    "port": "PGPORT",
    "dbname": "PGDATABASE",
    "service": "PGSERVICE",
    "options": "PGOPTIONS",
}
"""The settings that name a database, each with its environment variable."""

_NOT_REACHED = {
    "refused": "no server listens at the address of the connection string: start the server, or use another address",
    "resolve": "the host of the connection string is unknown: use another one",
    "translate": "the host of the connection string is unknown: use another one",
}
"""The system's texts for a failed connection, and the hints."""

T = TypeVar("T")
Connection = psycopg.Connection[tuple[Any, ...]]

_AGAIN = frozenset({"08", "53", "57", "58", "40"})
"""Classes of SQLSTATE that say nothing of the next attempt: connection, resources, shutdown, disk, a transaction rolled back."""

_LOCKED = "55P03"
_FULL = "53100"

_REFUSED = {
    "42P01": "tables of transcript_store are missing: in a database that has none yet, `ship`, `record` and `import --into` "
    "create them, in Python PostgresBackend(…, create=True); if some were removed, restore the database from its backup",
    "42501": "the user has too few rights: it needs SELECT, INSERT, UPDATE and DELETE on the tables, and CREATE on the schema to make them",
    "25006": "the server accepts no writes (it is a standby): connect to the primary, for example with target_session_attrs=read-write",
    "3F000": "there is no schema for the tables: give one with options=-csearch_path=…",
}
"""The meaning of permanent errors, and the hints."""

_NOT_LET_IN = {
    "password": "the server refuses the user or the password of the connection string: give the right one",
    "authentication": "the server refuses the user of the connection string: give the right one",
    "pg_hba.conf": "the server accepts no connection from here with these settings (pg_hba.conf): add a line for it, or connect by TLS",
    "does not exist": "the database or the user of the connection string does not exist: create it, or give another one",
    "not permitted": "the user of the connection string may not log in: give another one",
    "permission denied": "the user of the connection string may not connect to this database: grant it CONNECT",
    "certificate": "the TLS certificate is not accepted: give sslrootcert, or sslcert and sslkey",
    "SSL": "client and server do not agree on TLS: give another sslmode",
}
"""A server reports a rejected login only in its text. In another language than English it counts as unreachable."""


class _PatientConnection(psycopg.Connection[tuple[Any, ...]]):
    """A connection that gives up when no data has come for some time: a hanging server must not hang its caller."""

    silence_seconds: float = 10.0

    def __del__(self, warn: Any = None, /) -> None:
        """Nothing to warn of: one that is idle goes with its backend, and libpq closes it, except in a child."""

    def wait(self, gen: Generator[Any, Any, T], *arguments: Any, **named: Any) -> T:
        return super().wait(self._in_time(gen), *arguments, **named)

    def _in_time(self, gen: Generator[Any, Any, T]) -> Generator[Any, Any, T]:
        last = time.monotonic()
        try:
            wanted = next(gen)
            while True:
                ready = yield wanted  # nothing each tenth of a second in which nothing came
                if ready:
                    last = time.monotonic()
                elif time.monotonic() - last > self.silence_seconds:
                    raise TimeoutError
                wanted = gen.send(ready)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]


def _why_not_reached(text: str) -> str:
    return next(
        (why for word, why in _NOT_REACHED.items() if word in text), "no connection to the server could be made in time"
    )


class Connections:
    """At most ``most`` connections at the same time, each in autocommit. ``doing`` of a call is for its error."""

    def __init__(
        self,
        conninfo: str,
        *,
        name: str,
        schema: str | None = None,
        most: int,
        timeout_seconds: float,
        prepare_threshold: int | None,
    ) -> None:
        readable = False
        try:
            given = conninfo_to_dict(conninfo)
            readable = True
        except psycopg.Error:
            pass  # its text has parts of the string
        if not readable:
            raise ValueError("this is not a connection string of PostgreSQL, such as postgresql://user@host/database")
        self._conninfo = conninfo
        if schema is not None:  # alone: what stands in another schema under the same names is another library's
            given["options"] = " ".join(filter(None, [str(given.get("options") or ""), f"-csearch_path={schema}"]))
        where = {part: given.get(part) or os.environ.get(variable) for part, variable in _WHERE.items()}
        self.identity = "postgresql:" + sha256(json.dumps(where).encode()).hexdigest()
        self._options: dict[str, Any] = {
            "connect_timeout": max(2, round(timeout_seconds)),
            "tcp_user_timeout": round(timeout_seconds * 1000),
            "application_name": "transcript_store",
        }
        self._options = {key: value for key, value in self._options.items() if key not in given}
        if schema is not None:
            self._options["options"] = given["options"]
        self._options["prepare_threshold"] = prepare_threshold
        self._name = name
        self._timeout_seconds = timeout_seconds
        self._room = threading.BoundedSemaphore(most)
        self._idle: list[Connection] = []
        self._pid: int | None = None
        self._has_answered = False

    def run(self, act: Callable[[Connection], T], doing: str) -> T:
        """The result of ``act``.

        Raises:
            OutcomeUnknownError: it is in doubt, or the server did not accept it now.
            BackendUnreachableError: no connection could be made.
            BackendError: the server refused it for good, and nothing was stored; or the connections belong to another
                process.
        """
        if self._pid not in (None, os.getpid()):
            raise self._refusal(
                doing, "it was used by another process before a fork: create another one in this process"
            )
        failed: BackendError | OutcomeUnknownError
        try:
            with self._connection(doing) as connection:
                return act(connection)
        except (psycopg.Error, OSError) as error:
            if isinstance(error, BackendError):
                raise
            failed = self._judged(error, doing)
        raise failed  # here, so that the error carries no text of the server

    @contextmanager
    def _connection(self, doing: str) -> Iterator[Connection]:
        if not self._room.acquire(timeout=self._timeout_seconds):
            raise OutcomeUnknownError(f"all connections were in use for {self._timeout_seconds:g} seconds")
        try:
            connection = self._idle.pop() if self._idle else self._connected(doing)
            try:
                yield connection
            finally:
                self._give_back(connection)
        finally:
            self._room.release()

    def _connected(self, doing: str) -> Connection:
        self._pid = os.getpid()
        try:
            connection = _PatientConnection.connect(self._conninfo, autocommit=True, **self._options)
        except (psycopg.Error, OSError) as error:
            failed = self._judged(error, doing)
            if isinstance(failed, OutcomeUnknownError):
                failed = BackendUnreachableError(_why_not_reached(str(error)), has_answered=self._has_answered)
        else:
            self._has_answered = True
            connection.silence_seconds = self._timeout_seconds
            return connection
        raise failed  # here, as in `run`

    def _give_back(self, connection: Connection) -> None:
        """Keep it if no statement is running on it. If it is lost, the idle ones most likely are, too."""
        if connection.pgconn.transaction_status == psycopg.pq.TransactionStatus.IDLE:
            self._idle.append(connection)
            return
        connection.close()
        if connection.pgconn.transaction_status == psycopg.pq.TransactionStatus.UNKNOWN:
            self.close()

    def close(self) -> None:
        """Close the idle ones. The next call opens a new one."""
        if self._pid == os.getpid():
            while self._idle:
                try:
                    self._idle.pop().close()
                except IndexError:
                    return

    # ---- errors ----------------------------------------------------------------------------------------------------------

    def _judged(self, error: psycopg.Error | OSError, doing: str) -> BackendError | OutcomeUnknownError:
        kind = type(error).__name__
        state = getattr(error, "sqlstate", None)
        if state is None:
            if isinstance(error, psycopg.OperationalError):
                text = str(error)
                for words, reason in _NOT_LET_IN.items():
                    if (words in text and "FATAL" in text) or (words == "SSL" and words in text and "required" in text):
                        return self._refusal(doing, reason)
            if isinstance(error, psycopg.DataError | psycopg.NotSupportedError | psycopg.ProgrammingError):
                return self._refusal(doing, f"the client library refuses it ({kind})")
            return OutcomeUnknownError(f"the server did not answer ({kind})")
        if state == _FULL:
            return OutcomeUnknownError(f"the disk of the server is full: make room there ({kind}, SQLSTATE {state})")
        if state[:2] in _AGAIN or state == _LOCKED:
            return OutcomeUnknownError(f"the server did not do it now ({kind}, SQLSTATE {state})")
        return self._refusal(doing, _REFUSED.get(state, f"the server refuses it ({kind}, SQLSTATE {state})"))

    def _refusal(self, doing: str, reason: str) -> BackendError:
        return BackendError(path=self._name, doing=doing, reason=reason, outcome="not stored")
