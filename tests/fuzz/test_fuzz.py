"""P15, P10: any bytes give a result or an error of ours: no crash, no hang, no changed data."""

from __future__ import annotations

import importlib.util

import pytest

from tests.crash.kernel import Note
from tests.fuzz.fuzzing import CORPUS, fuzz
from tests.fuzz.targets import TARGETS, _insist_on_a_round_trip
from tests.kit.cases import for_each


@for_each("target", TARGETS)
def test_the_corpus(target: str) -> None:
    """P15: every input that was worth keeping, replayed; and each one cut short."""
    inputs = sorted((CORPUS / target).iterdir())
    assert inputs, "a target without a seed"
    for file in inputs:
        data = file.read_bytes()
        TARGETS[target](data)
        TARGETS[target](data[: len(data) // 2])


@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.parametrize("target", TARGETS)
def test_new_inputs(target: str, record_property: Note) -> None:
    """P15: 250 inputs each with atheris; ``python -m tests.fuzz`` tries more."""
    if importlib.util.find_spec("atheris") is None:
        pytest.skip("needs atheris: pip install -e '.[fuzz]'")
    count = fuzz(target, "-runs=250")
    record_property("inputs fuzzed", count)
    assert count >= 250


def test_a_value_that_comes_back_changed_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The harness itself: an encoder that turns NaN into null must fail."""
    monkeypatch.setattr("tests.fuzz.targets.encode", lambda value, *_: b'{"v":null}')
    with pytest.raises(AssertionError):
        _insist_on_a_round_trip({"v": float("nan")})
