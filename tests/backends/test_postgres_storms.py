"""Processes that take one conversation over from one another on a PostgreSQL, while they and the server are killed.

Each process reports the answers that it got. No acknowledged message is lost, duplicated or out of order (R1, R3, R4, R5).
"""

from __future__ import annotations

import selectors
import subprocess
import sys
from random import Random

import pytest

from tests.backends.judging import Verdict, judged, placed
from tests.kit.postgres import PostgresServer
from tests.kit.proxy import Net, Proxy
from transcript_store.backends import BackendConversation, BackendError, ConversationTakenOverError, PostgresBackend
from transcript_store.testing import SimulatedBackend

LONG = pytest.mark.long


def test_the_judge_sees_what_must_not_be():
    """An acknowledged message that is lost, duplicated or out of order, a refused one that is stored, or one that a
    claim did not read.
    """
    backend = SimulatedBackend()
    log = placed(backend)
    log.initialize(messages=[{"text": text} for text in ("a1", "a2", "b1", "b1")])
    said = [
        ("a", "claim 1 0"),
        ("a", "stored 1 a2"),
        ("a", "stored 1 a1"),
        ("a", "stored 1 a3"),
        ("b", "claim 2 1"),
        ("b", "refused 2 b1"),
    ]
    verdict = judged(backend, log.id, said)
    assert (verdict.acknowledged, verdict.takeovers, verdict.lost, verdict.twice) == (3, 2, ["a3"], ["b1"])
    assert verdict.wrong == [
        "R4: b1 was refused, and is stored",
        "R5: a1 is out of order",
        "R3: epoch 2 had not read a2",
    ]


class Storm:
    """One conversation on a PostgreSQL, and the reports of the processes that write to it."""

    def __init__(self, postgres: PostgresServer, seed: int) -> None:
        self.url = postgres.schema()
        self.random = Random(seed)
        self.reports: list[tuple[str, str]] = []
        log = placed(PostgresBackend(self.url, create=True))
        log.initialize()
        self.id = log.id

    def verdict(self) -> Verdict:
        """Require that nothing was lost, and that enough was acknowledged."""
        verdict = judged(PostgresBackend(self.url), self.id, self.reports)
        assert (verdict.lost, verdict.twice, verdict.wrong) == ([], [], [])
        assert verdict.acknowledged > 20
        return verdict

    def texts(self) -> set[str]:
        log = placed(PostgresBackend(self.url), self.id, read_only=True)
        log.load()
        return {message["text"] for message in log.get_messages()}


@LONG
@pytest.mark.parametrize("seed", range(2))
def test_writers_and_the_server_are_killed(postgres: PostgresServer, record_property, seed: int):
    """R1, R3, R4, R5: four processes; a writer is killed after each dozen of answers, and the server three times."""
    storm = Storm(postgres, seed)
    readers = selectors.DefaultSelector()
    count = 0

    def begin() -> None:
        nonlocal count
        count += 1
        name = f"s{seed}w{count}"
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.backends.judging", storm.url, storm.id, name], stdout=subprocess.PIPE
        )
        assert process.stdout is not None
        readers.register(process.stdout, selectors.EVENT_READ, (name, process))

    def end(key: selectors.SelectorKey) -> None:
        """Kill it, and read the rest of its output: a line that is cut off was reported to no one."""
        name, process = key.data
        readers.unregister(key.fileobj)
        process.kill()
        rest = process.stdout.read()
        storm.reports.extend((name, line.decode()) for line in rest.split(b"\n")[:-1])
        process.wait()
        process.stdout.close()

    for _ in range(4):
        begin()
    kills, server_kills = 0, 0
    while kills < 12:
        before = len(storm.reports)
        while len(storm.reports) < before + 12:
            for key, _ in readers.select():
                line = key.fileobj.readline()  # type: ignore[union-attr]
                assert line, f"{key.data[0]} ended by itself"
                storm.reports.append((key.data[0], line.decode().rstrip("\n")))
        if kills % 4 == 3:
            postgres.restart()
            server_kills += 1
        end(storm.random.choice(list(readers.get_map().values())))
        kills += 1
        begin()
    for key in list(readers.get_map().values()):
        end(key)
    verdict = storm.verdict()
    record_property("messages acknowledged on PostgreSQL in storms with kills", verdict.acknowledged)
    record_property("takeovers in them", verdict.takeovers)
    record_property("kills of writers in them", kills)
    record_property("kills of the server in them", server_kills)


@LONG
@pytest.mark.parametrize("seed", range(4))
def test_the_network_breaks_one_exchange_in_five(postgres: PostgresServer, record_property, seed: int):
    """R1, R3, R4, R5, R6: three sessions take turns through a proxy that loses, delays and cuts; late requests land at any time."""
    storm = Storm(postgres, seed)
    unknown: list[tuple[BackendConversation, BackendError, str]] = []
    with Proxy(postgres.port) as proxy:
        proxy.on_exchange = lambda: (
            storm.random.choice([Net.LOST, Net.REFUSED, Net.LATE]) if storm.random.random() < 0.2 else Net.DONE
        )
        backend = PostgresBackend(storm.url.replace(str(postgres.port), str(proxy.port)), timeout_seconds=2)
        logs = {name: placed(backend, storm.id, holder=name, waits_seconds=(0.0,) * 2) for name in "abc"}
        owns: set[str] = set()
        for number in range(150):
            name = storm.random.choice("abc")
            log, text = logs[name], f"{name}{number}"
            if storm.random.random() < 0.1:
                proxy.land()
            try:
                if name not in owns:
                    log.load()
                    owns.add(name)
                    storm.reports.append((name, f"claim {log.epoch} {len(log.get_messages())}"))
                log.append_message({"text": text})
            except ConversationTakenOverError:
                owns.discard(name)
                storm.reports.append((name, f"refused {log.epoch} {text}"))
            except BackendError as error:
                if name in owns and error.outcome == "unknown":
                    unknown.append((log, error, text))
            else:
                storm.reports.append((name, f"stored {log.epoch} {text}"))
        proxy.on_exchange = None
        proxy.land()
        for log in (logs[name] for name in owns):
            log.get_messages()
        stored = storm.texts()
        assert all(log.outcome(error) in (None, text in stored) for log, error, text in unknown)
        backend.close()
    verdict = storm.verdict()
    record_property("messages acknowledged on PostgreSQL through a proxy", verdict.acknowledged)
    record_property("takeovers through it", verdict.takeovers)
    record_property("unknown outcomes through it", len(unknown))
