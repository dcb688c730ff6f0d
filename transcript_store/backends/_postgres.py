"""How are conversations stored in PostgreSQL? A slot is a row, and the primary key is the fence.

Invariants, which the tests name:

Q1  A put is one statement. It inserts the row if the previous slot exists with the expected hash, and if the server
    will have it on disk when it answers. A running insert makes another one of the same slot wait for it.
Q2  A put locks the previous row until it is done. So ``expunge``, which removes rows, cannot remove it in between and
    free the name.
Q3  Between two statements nothing stays in the server's session: poolers that give each transaction another one are fine.
Q4  No text of the server or of the connection string is in an error.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from transcript_store.backends._backend import (
    Backend,
    BackendError,
    KeyValueStore,
    ListedValue,
    SlotRange,
    StoredSummary,
    StoredValue,
)
from transcript_store.backends._slots import slot_hash
from transcript_store.errors import MissingExtraError

if TYPE_CHECKING:
    import psycopg

    from transcript_store._doctor import Check
    from transcript_store.backends._backend import KeyValueStore
    from transcript_store.backends._postgres_connections import Connection

    Cursor = psycopg.Cursor[tuple[Any, ...]]

__all__ = ["PostgresBackend"]


# ---- postgres schema ----
# The tables of a PostgreSQL backend, by numbered migrations. Nothing here does I/O.
#
# A slot is ``bytea``, not ``jsonb``, which reorders keys, drops repeated ones and refuses ``\u0000``: the chain is over
# bytes. The view ``ts_line`` shows the lines to SQL as JSON. A published migration is never changed; a new one follows
# it.

MIGRATIONS: tuple[str, ...] = (
    r"""
    CREATE TABLE ts_slot (
        conversation uuid NOT NULL, slot bigint NOT NULL, hash bytea NOT NULL, data bytea NOT NULL,
        PRIMARY KEY (conversation, slot)
    );
    ALTER TABLE ts_slot ALTER COLUMN data SET STORAGE EXTERNAL;
    CREATE TABLE ts_summary (
        id uuid PRIMARY KEY, updated_at timestamptz NOT NULL, slot bigint NOT NULL, data bytea NOT NULL, labels jsonb NOT NULL
    ) WITH (fillfactor = 70);
    CREATE INDEX ts_summary_newest ON ts_summary (updated_at DESC, id DESC);
    CREATE INDEX ts_summary_labels ON ts_summary USING gin (labels);
    CREATE VIEW ts_line AS
        SELECT conversation, slot, envelope ->> 'kind' AS kind, (envelope ->> 'at')::timestamptz AS at, number, line
          FROM ts_slot
         CROSS JOIN LATERAL (SELECT position('\x0a'::bytea IN data) AS head) AS cut
         CROSS JOIN LATERAL (SELECT convert_from(substring(data FROM 1 FOR head - 1), 'UTF8')::json AS envelope) AS slots
         CROSS JOIN LATERAL unnest(string_to_array(convert_from(substring(data FROM head + 1), 'UTF8'), E'\n'))
               WITH ORDINALITY AS lines (line, number)
         WHERE line <> '';
    """,
    """
    CREATE TABLE ts_key (conversation uuid PRIMARY KEY, data bytea NOT NULL);
    """,
    """
    CREATE TABLE ts_snapshot (
        name text COLLATE "C" PRIMARY KEY, version uuid NOT NULL, put_at timestamptz NOT NULL, data bytea NOT NULL
    );
    ALTER TABLE ts_snapshot ALTER COLUMN data SET STORAGE EXTERNAL;
    """,
    # PostgreSQL's json refuses NUL and halves of surrogate pairs as soon as an operator reads a value, so one line
    # would end each query over all of them. U+FFFD replaces them. An even number of backslashes before an escape is
    # text.
    r"""
    CREATE FUNCTION ts_readable(line text) RETURNS text LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $$
        SELECT CASE WHEN line !~* '\\u(0000|d[89a-f])' THEN line ELSE
            regexp_replace(regexp_replace(line,
                '(?<!\\)((?:\\\\)*)(?:\\u0000|\\u[dD][89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F]))', '\1\\ufffd', 'g'),
                '(?<!\\u[dD][89abAB][0-9a-fA-F]{2})(?<!\\)((?:\\\\)*)\\u[dD][c-fC-F][0-9a-fA-F]{2}', '\1\\ufffd', 'g')
        END
    $$;
    CREATE OR REPLACE VIEW ts_line AS
        SELECT conversation, slot, envelope ->> 'kind' AS kind, (envelope ->> 'at')::timestamptz AS at, number,
               ts_readable(exact) AS line, exact
          FROM ts_slot
         CROSS JOIN LATERAL (SELECT position('\x0a'::bytea IN data) AS head) AS cut
         CROSS JOIN LATERAL (
               SELECT ts_readable(convert_from(substring(data FROM 1 FOR head - 1), 'UTF8'))::json AS envelope) AS slots
         CROSS JOIN LATERAL unnest(string_to_array(convert_from(substring(data FROM head + 1), 'UTF8'), E'\n'))
               WITH ORDINALITY AS lines (exact, number)
         WHERE exact <> '';
    """,
)

HAS_TABLES = "SELECT to_regclass('ts_migration') IS NOT NULL"
APPLIED = "SELECT coalesce(max(number), 0) FROM ts_migration"

LOCKED = "SELECT pg_advisory_xact_lock(7166108523847225)"
"""Two concurrent migrations wait for each other; the lock ends with its transaction."""

BEGIN = (
    "CREATE TABLE IF NOT EXISTS ts_migration (number int PRIMARY KEY, applied_at timestamptz NOT NULL DEFAULT now())"
)

NOTE = "INSERT INTO ts_migration (number) VALUES (%s)"


# ---- postgres ----

_PUT = """
    INSERT INTO ts_slot (conversation, slot, hash, data)
    SELECT %(id)s::uuid, %(slot)s::bigint, %(hash)s::bytea, %(data)s::bytea
    {before} AND current_setting('synchronous_commit') <> 'off' {hold}
    ON CONFLICT DO NOTHING
"""
_BEGIN = """
    WITH put AS ({put} RETURNING conversation),
    listed AS (
        INSERT INTO ts_summary (id, updated_at, slot, data, labels) SELECT conversation, now(), 0, '', '{{}}' FROM put
        ON CONFLICT DO NOTHING
    )
    SELECT FROM put
"""
"""R11: a writer that is killed before the first summary leaves a conversation that a listing must show: an empty
summary represents it.
"""
_PUT_FIRST = _BEGIN.format(
    put=_PUT.format(before="WHERE NOT EXISTS (SELECT FROM ts_slot WHERE conversation = %(id)s::uuid)", hold="")
)
_PUT_NEXT = _PUT.format(
    before="""FROM ts_slot AS before
        WHERE before.conversation = %(id)s::uuid AND before.slot = %(slot)s::bigint - 1 AND before.hash = %(previous)s::bytea""",
    hold="FOR KEY SHARE OF before",
)

_PUT_BEHIND_BYTES = _PUT.format(
    before="""FROM ts_slot AS before
        WHERE before.conversation = %(id)s::uuid AND before.slot = %(slot)s::bigint - 1 AND before.hash <> %(previous)s::bytea
          AND substring(before.data FROM position('\\x0a'::bytea IN before.data) - 34 FOR 32) = %(previous)s::bytea""",
    hold="FOR KEY SHARE OF before",
)
"""If the column was changed: it is only a faster copy of what the bytes contain, and the bytes decide."""

_READ = "SELECT slot, data FROM ts_slot WHERE conversation = %s::uuid AND slot > %s ORDER BY slot"

_CONVERSATIONS = """
    WITH RECURSIVE found (id) AS (
        (SELECT conversation FROM ts_slot WHERE conversation {beyond} %s::uuid ORDER BY conversation LIMIT 1)
        UNION ALL
        SELECT (SELECT conversation FROM ts_slot WHERE conversation > found.id ORDER BY conversation LIMIT 1)
          FROM found WHERE found.id IS NOT NULL
    )
    SELECT id::text FROM found WHERE id IS NOT NULL LIMIT %s
"""
_ENDS = """
    WITH RECURSIVE found (id) AS (
        (SELECT conversation FROM ts_slot WHERE conversation {beyond} %s::uuid ORDER BY conversation LIMIT 1)
        UNION ALL
        SELECT (SELECT conversation FROM ts_slot WHERE conversation > found.id ORDER BY conversation LIMIT 1)
          FROM found WHERE found.id IS NOT NULL
    )
    SELECT id::text, (SELECT slot FROM ts_slot WHERE conversation = id ORDER BY slot DESC LIMIT 1) FROM found
     WHERE id IS NOT NULL AND EXISTS (SELECT FROM ts_slot WHERE conversation = id AND slot = 1) LIMIT %s
"""
_LEAST = "00000000-0000-0000-0000-000000000000"

_PUT_SUMMARY = """
    INSERT INTO ts_summary AS kept (id, updated_at, slot, data, labels)
    SELECT %(id)s::uuid, %(at)s::timestamptz, %(slot)s::bigint, %(data)s::bytea, %(labels)s::jsonb
      FROM ts_slot WHERE conversation = %(id)s::uuid AND slot = 1 FOR KEY SHARE
    ON CONFLICT (id) DO UPDATE SET (updated_at, slot, data, labels) =
        (excluded.updated_at, excluded.slot, excluded.data, excluded.labels)
     WHERE kept.slot <= excluded.slot
"""

_SUMMARIES = """
    SELECT id::text, to_char(updated_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'), slot, data FROM ts_summary
     WHERE true {which} ORDER BY updated_at DESC, id DESC LIMIT %(limit)s
"""
_BEFORE = "AND (updated_at, id) < (%(at)s::timestamptz, %(id)s::uuid)"
_NAMED = "AND labels ? %(label)s"
_VALUED = "AND labels @> %(label)s::jsonb"

_KEY = "SELECT data FROM ts_key WHERE conversation = %s::uuid AND data <> ''"

_PUT_FIRST_KEY = """
    INSERT INTO ts_key (conversation, data)
    SELECT %(id)s::uuid, %(data)s::bytea WHERE current_setting('synchronous_commit') <> 'off'
    ON CONFLICT DO NOTHING
"""
_PUT_KEY = """
    UPDATE ts_key SET data = %(data)s::bytea
     WHERE conversation = %(id)s::uuid AND data = %(known)s::bytea AND current_setting('synchronous_commit') <> 'off'
"""

_EXPUNGE = """
    WITH gone AS (DELETE FROM ts_summary WHERE id = %(id)s::uuid),
    emptied AS (
        UPDATE ts_key SET data = '' WHERE conversation = %(id)s::uuid
           AND EXISTS (SELECT FROM ts_slot WHERE conversation = %(id)s::uuid AND slot = %(keep)s)
    )
    DELETE FROM ts_slot WHERE conversation = %(id)s::uuid AND slot < %(keep)s
       AND EXISTS (SELECT FROM ts_slot WHERE conversation = %(id)s::uuid AND slot = %(keep)s)
"""


class PostgresBackend(Backend):
    """A backend on PostgreSQL 13 or later. Any number of threads may use it; each process has its own.

    It connects when it is first used, and not before. ``fsync`` has to be on in the server, as it is by default.
    ``synchronous_commit`` must not be off, and each put checks that. A forked child cannot use its parent's: create
    another one there. It cannot be pickled, because it may have a password.

    Args:
        conninfo: a connection string as libpq has them: ``postgresql://user@host/database``, or ``host=… dbname=…``.
            What is missing comes from the environment (``PGPASSWORD``, ``PGPASSFILE``, ``PGSERVICE``) as it does for
            ``psql``.
        create: create or update the tables if they are missing or of an earlier version. Otherwise that raises.
        schema: the schema that the tables are in: one library for each. ``create=True`` creates it. An address names it
            with ``?schema=copies``. None: the first of the role's ``search_path``, ``public`` by default.
        name: its name in errors.
        connections: the maximum of open connections; a call waits for one.
        timeout_seconds: how long a call waits for a connection, and for a silent server.
        prepare_threshold: after so many times a statement is prepared on its connection. None: never, for a pooler that
            gives each transaction another session and does not know of prepared statements.

    Raises:
        MissingExtraError: psycopg is not installed, which the extra ``postgres`` installs.
        ValueError: this is not a connection string (its text is not repeated); or the schema is not a name of
            lower-case letters, digits and ``_``, or differs from the one in the address.
    """

    def __init__(
        self,
        conninfo: str,
        *,
        create: bool = False,
        schema: str | None = None,
        name: str = "postgresql",
        connections: int = 4,
        timeout_seconds: float = 10.0,
        prepare_threshold: int | None = 5,
    ) -> None:
        try:
            from transcript_store.backends._postgres_connections import Connections
        except ModuleNotFoundError as error:
            raise MissingExtraError(feature="a backend on PostgreSQL", extra="postgres") from error
        conninfo, self._schema = _with_schema(conninfo, schema)
        self.name = name
        self._may_create = create
        self._connections = Connections(
            conninfo,
            name=name,
            schema=self._schema,
            most=connections,
            timeout_seconds=timeout_seconds,
            prepare_threshold=prepare_threshold,
        )
        self._is_known = False
        self._knowing = threading.Lock()

    def __repr__(self) -> str:
        return f"PostgresBackend({self.name!r})"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a PostgresBackend cannot be pickled or copied, as it may have a password: create another one")

    def close(self) -> None:
        """Close the unused connections. A later call connects again."""
        self._connections.close()

    # ---- Backend -----------------------------------------------------------------------------------------------------------

    def put(self, id: str, slot: int, data: bytes, previous: bytes) -> bool:
        """Put a slot if it is absent, and if the one before has this hash. On return the server has it on its disk.

        Raises:
            OutcomeUnknownError: it is in doubt whether it is stored.
            BackendError: the server refused it permanently; ``synchronous_commit`` is off, for example. Nothing was
                stored.
        """
        given = {"id": id, "slot": slot, "hash": slot_hash(data), "data": data, "previous": previous}
        doing = "put a slot"
        if self._run(_PUT_FIRST if slot == 1 else _PUT_NEXT, given, doing).rowcount:
            return True
        self._require_synchronous(doing)
        return slot > 1 and self._run(_PUT_BEHIND_BYTES, given, doing).rowcount > 0

    def _require_synchronous(self, doing: str) -> None:
        if self._rows("SHOW synchronous_commit", None, doing) == [("off",)]:
            raise self._refusal(
                doing,
                "synchronous_commit is off, so the server may lose acknowledged writes: set it to on, for example with "
                "ALTER ROLE … SET synchronous_commit = on",
            )

    def read(self, id: str, after: int = 0) -> list[SlotRange]:
        """The slots of one moment, in order."""
        return [SlotRange(slot, slot, data) for slot, data in self._rows(_READ, (id, after), "read a conversation")]

    def conversations(self, *, after: str = "", limit: int = 1000) -> list[str]:
        """The ids that have a slot, each found by the index."""
        statement = _CONVERSATIONS.format(beyond=">" if after else ">=")
        return [found for (found,) in self._rows(statement, (after or _LEAST, limit), "list the conversations")]

    def ends(self, *, after: str = "", limit: int = 1000) -> list[tuple[str, int]]:
        """The last slot of each conversation that was not expunged, found by the index; all as of one moment."""
        rows = self._rows(
            _ENDS.format(beyond=">" if after else ">="), (after or _LEAST, limit), "look at the conversations"
        )
        return [(found, slot) for found, slot in rows]

    def examined(self) -> tuple[list[Check], list[float]]:
        """Settings, tables, rights, the clock, and a hundred committed inserts, which are removed again."""
        from transcript_store.backends._checks import postgres_checks

        def ask(statement: str, given: Any) -> list[tuple[Any, ...]]:  # whatever tables there are
            return self._connections.run(
                lambda connection: connection.execute(statement, given).fetchall(), "look at the server"
            )

        return postgres_checks(ask, len(MIGRATIONS))

    @property
    def identity(self) -> str:
        """A hash of the database's address and name."""
        return self._connections.identity

    def put_summary(self, summary: StoredSummary) -> None:
        """Store a summary, unless one of a later slot is stored already, or the conversation was expunged."""
        labels = json.loads(summary.data).get("metadata", {}).get("labels") or {}
        given = {
            "id": summary.id,
            "at": summary.updated_at,
            "slot": summary.slot,
            "data": summary.data,
            "labels": json.dumps({_storable(key): _storable(value) for key, value in labels.items()}),
        }
        self._run(_PUT_SUMMARY, given, "keep a summary")

    def summaries(
        self, *, before: tuple[str, str] | None = None, limit: int = 50, label: str | None = None
    ) -> list[StoredSummary]:
        """The newest summaries after ``before``, found by an index; also by label."""
        which, given = "", dict[str, Any](limit=limit)
        if before is not None:
            which += _BEFORE
            given |= {"at": before[0], "id": before[1]}
        if label is not None:
            name, equals, value = map(_storable, label.partition("="))
            which += _VALUED if equals else _NAMED
            given["label"] = json.dumps({name: value}) if equals else name
        rows = self._rows(_SUMMARIES.format(which=which), given, "list the conversations")
        return [StoredSummary(*row) for row in rows]

    def key(self, id: str) -> bytes | None:
        """The key file, if there is one."""
        rows = self._rows(_KEY, (id,), "read a key")
        return bytes(rows[0][0]) if rows else None

    def put_key(self, id: str, data: bytes, known: bytes | None) -> bool:
        """Replace the key file ``known``, in one statement. On return the server has it on its disk.

        Raises:
            OutcomeUnknownError, BackendError: as :meth:`put`.
        """
        doing = "put a key"
        given = {"id": id, "data": data, "known": known}
        if self._run(_PUT_FIRST_KEY if known is None else _PUT_KEY, given, doing).rowcount:
            return True
        self._require_synchronous(doing)
        return False

    def expunge(self, id: str, keep: int) -> None:
        """Remove the slots below ``keep``, the key and the summary, in one transaction. Nothing happens if ``keep`` does not exist."""
        self._run(_EXPUNGE, {"id": id, "keep": keep}, "expunge a conversation")

    @property
    def cells(self) -> KeyValueStore:
        """The cells of its snapshots."""
        return PostgresCells(self._run, self._require_synchronous)

    # ---- statements ------------------------------------------------------------------------------------------------------

    def has_tables(self) -> bool:
        """True if the database has the tables, of any version. If not, a backend with ``create=True`` creates them.

        Raises:
            BackendError: the server refuses the question, or does not answer.
        """
        asked = self._connections.run(lambda connection: connection.execute(HAS_TABLES), "look for the tables")
        return bool(asked.fetchall()[0][0])

    def _rows(self, statement: str, given: Any, doing: str) -> list[tuple[Any, ...]]:
        """The rows of one statement."""
        return self._run(statement, given, doing).fetchall()

    def _run(self, statement: str, given: Any, doing: str) -> Cursor:
        """Run one statement; on return all rows are here."""
        if not self._is_known:
            self._know(doing)
        return self._connections.run(lambda connection: connection.cursor(binary=True).execute(statement, given), doing)

    def _know(self, doing: str) -> None:
        """Check once whether this version knows the tables; create them if requested."""
        with self._knowing:
            if not self._is_known:
                self._connections.run(self._migrate if self._may_create else self._look_at_tables, doing)
                self._is_known = True

    def _look_at_tables(self, connection: Connection) -> None:
        self._missing(connection.execute(APPLIED).fetchall()[0][0], "look at the tables", may_create=False)

    def _migrate(self, connection: Connection) -> None:
        with connection.transaction():
            connection.execute(LOCKED)
            if self._schema is not None:
                connection.execute(f"CREATE SCHEMA IF NOT EXISTS {self._schema}")  # a plain name: see _with_schema
            if not connection.execute(HAS_TABLES).fetchall()[0][0]:
                connection.execute(BEGIN)
            applied = connection.execute(APPLIED).fetchall()[0][0]
            for number in self._missing(applied, "make the tables", may_create=True):
                connection.execute(MIGRATIONS[number - 1])
                connection.execute(NOTE, (number,))

    def _missing(self, applied: int, doing: str, *, may_create: bool) -> range:
        """The numbers of the migrations that are still to be made."""
        known = len(MIGRATIONS)
        if applied > known:
            raise self._refusal(doing, "a later version of transcript-store created the tables: upgrade this one")
        if applied < known and not may_create:
            raise self._refusal(
                doing,
                "an earlier version of transcript-store created the tables: PostgresBackend(…, create=True) brings them up to date",
            )
        return range(applied + 1, known + 1)

    def _refusal(self, doing: str, reason: str) -> BackendError:
        return BackendError(path=self.name, doing=doing, reason=reason, outcome="not stored")


_PLAIN_NAME = re.compile(r"[a-z_][a-z0-9_]{0,62}")


def _with_schema(conninfo: str, schema: str | None) -> tuple[str, str | None]:
    """The connection string without the option ``schema``, which libpq does not know, and the schema that is meant."""
    if "://" in conninfo and (named := _SCHEMA.search(conninfo)):
        if schema not in (None, named[2]):
            raise ValueError("the address names another schema than schema= does")
        schema = named[2]
        rest = conninfo[named.end() :]
        conninfo = f"{conninfo[: named.start()]}{named[1]}{rest[1:]}" if rest else conninfo[: named.start()]
    if schema is not None and not _PLAIN_NAME.fullmatch(schema):
        raise ValueError("a schema's name has lower-case letters, digits and _, and does not start with a digit")
    return conninfo, schema


_SCHEMA = re.compile(r"([?&])schema=([^&]*)")


def _storable(text: str) -> str:
    """Text that jsonb can hold: it refuses NUL and halves of characters. Two labels that differ in nothing else are one for a search."""
    return text.replace("\0", "\ufffd").encode("utf-8", "replace").decode()


# ---- versioned values ----
# Snapshots on PostgreSQL: a value is a row, and its version changes with each statement that puts or holds it.

T = TypeVar("T")
R = TypeVar("R")

_HELD = """
    WITH held AS (
        UPDATE ts_snapshot SET version = gen_random_uuid(), put_at = now() WHERE name = ANY(%(holding)s::text[]) RETURNING name
    )
"""
_IS_HELD = "(SELECT count(*) FROM held) = %(count)s AND current_setting('synchronous_commit') <> 'off'"
_PUT_FIRST_VALUE = f"""{_HELD}
    INSERT INTO ts_snapshot (name, version, put_at, data)
    SELECT %(name)s::text, gen_random_uuid(), now(), %(data)s::bytea WHERE {_IS_HELD}
    ON CONFLICT DO NOTHING
"""
_PUT_VALUE = f"""{_HELD}
    UPDATE ts_snapshot SET version = gen_random_uuid(), put_at = now(), data = %(data)s::bytea
     WHERE name = %(name)s::text AND version = %(known)s::uuid AND {_IS_HELD}
"""  # noqa: S608 (its parts are constants above)
_GET = "SELECT data, version::text FROM ts_snapshot WHERE name = %s::text"
_REMOVE = "DELETE FROM ts_snapshot WHERE name = %s::text AND version = %s::uuid"
_LIST = """
    SELECT name, version::text, extract(epoch FROM now() - put_at)::float8, octet_length(data) FROM ts_snapshot
     WHERE starts_with(name, %s::text) ORDER BY name
"""


class PostgresCells(KeyValueStore):
    """``run`` runs one statement of the backend; ``refuse_if_forgetful`` refuses a server that would forget what it acknowledged."""

    can_hold = True

    def __init__(self, run: Callable[[str, Any, str], Any], refuse_if_forgetful: Callable[[str], None]) -> None:
        self._run = run
        self._refuse_if_forgetful = refuse_if_forgetful

    def get(self, name: str) -> StoredValue | None:
        found = self._run(_GET, (name,), "read a snapshot").fetchall()
        return StoredValue(bytes(found[0][0]), found[0][1]) if found else None

    def put(self, name: str, data: bytes, known: StoredValue | None, holding: Sequence[str] = ()) -> bool:
        given = {"name": name, "data": data, "holding": [*holding], "count": len(holding)}
        doing = "put a snapshot"
        more = {} if known is None else {"known": known.version}
        is_put = bool(self._run(_PUT_VALUE if more else _PUT_FIRST_VALUE, {**given, **more}, doing).rowcount == 1)
        if not is_put:
            self._refuse_if_forgetful(doing)
        return is_put

    def remove(self, name: str, known: StoredValue | ListedValue) -> bool:
        return bool(self._run(_REMOVE, (name, known.version), "remove a snapshot").rowcount == 1)

    def list(self, prefix: str) -> Sequence[ListedValue]:
        return [ListedValue(*row) for row in self._run(_LIST, (prefix,), "list the snapshots").fetchall()]

    def each(self, act: Callable[[T], R], items: Iterable[T]) -> Iterable[R]:
        return map(act, items)
