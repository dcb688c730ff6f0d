"""``BackendMachine`` on the backends of the kit, and on backends that break the contract: it finds each of them, with a short story."""

from __future__ import annotations

import re
from collections.abc import Iterable

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.backends.broken import Overwrites, PrefersSlots, SaysItIsOurs
from transcript_store.backends import Backend
from transcript_store.testing import SimulatedBackend, SimulatedObjectStore
from transcript_store.testing.machines import BackendMachine


def live(make_backend: type[SimulatedBackend], lives: int) -> None:
    class OnOne(BackendMachine):
        def __init__(self) -> None:
            self.backend = make_backend()
            super().__init__()

        def open_backend(self) -> Backend:
            return self.backend

    run_state_machine_as_test(
        OnOne,
        settings=settings(
            max_examples=lives,
            stateful_step_count=25,
            deadline=None,
            derandomize=True,
            database=None,
            phases=[Phase.generate, Phase.shrink],
            report_multiple_bugs=False,
            suppress_health_check=list(HealthCheck),
        ),
    )


@pytest.mark.parametrize("backend", [SimulatedBackend, SimulatedObjectStore])
@pytest.mark.parametrize("lives", [20, pytest.param(200, marks=pytest.mark.long)])
def test_the_simulated_backends_keep_the_contract(backend: type[SimulatedBackend], lives: int):
    live(backend, lives)


class ForgetsTheFirst(SimulatedObjectStore):
    def delete_slots(self, id: str, slots: Iterable[int]) -> None:
        super().delete_slots(id, [*slots, 1, len(self.names(id)) - 1])


class ListsOnePage(SimulatedBackend):
    def conversations(self, *, after: str = "", limit: int = 1000) -> list[str]:
        return [] if after else super().conversations(limit=limit)


@pytest.mark.parametrize(
    ("wrong", "steps"),
    [
        (Overwrites, 6),
        pytest.param(SaysItIsOurs, 6, marks=pytest.mark.long),
        pytest.param(PrefersSlots, 6, marks=pytest.mark.long),
        pytest.param(ForgetsTheFirst, 6, marks=pytest.mark.long),
        pytest.param(ListsOnePage, 6, marks=pytest.mark.long),
    ],
)
def test_the_machine_objects(wrong: type[SimulatedBackend], steps: int):
    """A backend that breaks a rule is found within 300 lives, with a story of a few steps."""
    with pytest.raises((AssertionError, KeyError)) as told:
        live(wrong, 300)
    story = "\n".join(getattr(told.value, "__notes__", []))
    assert 0 < len(re.findall(r"^state\.(?!both_read_all|teardown)\w+\(", story, re.MULTILINE)) <= steps


def test_a_machine_without_a_backend_is_refused():
    with pytest.raises(NotImplementedError, match="as for check_backend"):
        BackendMachine()
