r"""The tables of a PostgreSQL that keeps conversations, by numbered migrations. Nothing here does I/O.

A slot is ``bytea``, not ``jsonb``, which reorders keys, drops repeated ones and refuses ``\u0000``: the chain is over bytes. The view
``ts_line`` shows the lines to SQL, as JSON that it can look into.

A migration that has been published is never changed; the next one comes behind it.
"""

from __future__ import annotations

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
    # PostgreSQL's json refuses NUL and halves of surrogate pairs as soon as an operator looks into a value, so one line would end each
    # query over all of them. U+FFFD takes their place. An even number of backslashes before an escape is text.
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

APPLIED = "SELECT coalesce(max(number), 0) FROM ts_migration"

LOCKED = "SELECT pg_advisory_xact_lock(7166108523847225)"
"""Two that migrate at the same time take turns; the lock goes with its transaction."""

BEGIN = (
    "CREATE TABLE IF NOT EXISTS ts_migration (number int PRIMARY KEY, applied_at timestamptz NOT NULL DEFAULT now())"
)

NOTE = "INSERT INTO ts_migration (number) VALUES (%s)"
