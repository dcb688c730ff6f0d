"""Ways in which bytes go wrong on their way from a disk: seeded, so that a failure can be had again.

A file is a list of pieces: the lines of a text, the blocks of a ciphertext. What is changed, lost, moved, repeated or foreign is a
bit, a byte, or a piece.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

SEED = 20260726


def blocks(data: bytes, size: int = 16) -> list[bytes]:
    """The pieces of a ciphertext, as AES has them."""
    return [data[at : at + size] for at in range(0, len(data), size)]


class Mutations:
    """Mutations of ``pieces``; what is foreign comes out of ``others``, the pieces of another file of the same kind."""

    def __init__(self, pieces: Sequence[bytes], others: Sequence[bytes], seed: object = SEED) -> None:
        self.data = b"".join(pieces)
        self._pieces = list(pieces)
        self._others = [piece for piece in others if piece not in pieces]
        self._randomly = Random(f"{seed}")

    @property
    def kinds(self) -> dict[str, Callable[[], bytes]]:
        """Each kind by its name; every call gives another file, which is never the one that was there."""
        makers = (
            self._flip_a_bit,
            self._change_a_byte,
            self._lose_a_byte,
            self._lose_a_piece,
            self._lose_the_tail,
            self._move_a_piece,
            self._repeat_a_piece,
            self._insert_a_foreign_piece,
            self._put_a_foreign_piece_in_the_place_of_one,
            self._zero,
        )
        return {make.__name__.strip("_"): lambda make=make: self._another(make) for make in makers}  # type: ignore[misc]

    def _another(self, make: Callable[[], bytes]) -> bytes:
        for _ in range(1000):
            if (made := make()) != self.data:
                return made
        raise AssertionError(f"{make.__name__} changes nothing")

    def _flip_a_bit(self) -> bytes:
        at, bit = self._randomly.randrange(len(self.data)), self._randomly.randrange(8)
        return self.data[:at] + bytes([self.data[at] ^ 1 << bit]) + self.data[at + 1 :]

    def _change_a_byte(self) -> bytes:
        at = self._randomly.randrange(len(self.data))
        return self.data[:at] + bytes([self._randomly.randrange(256)]) + self.data[at + 1 :]

    def _lose_a_byte(self) -> bytes:
        at = self._randomly.randrange(len(self.data))
        return self.data[:at] + self.data[at + 1 :]

    def _lose_a_piece(self) -> bytes:
        at = self._randomly.randrange(len(self._pieces))
        return b"".join(self._pieces[:at] + self._pieces[at + 1 :])

    def _lose_the_tail(self) -> bytes:
        return self.data[: self._randomly.randrange(len(self.data))]

    def _move_a_piece(self) -> bytes:
        moved = [*self._pieces]
        piece = moved.pop(self._randomly.randrange(len(moved)))
        moved.insert(self._randomly.randrange(len(moved) + 1), piece)
        return b"".join(moved)

    def _repeat_a_piece(self) -> bytes:
        at = self._randomly.randrange(len(self._pieces))
        return b"".join(self._pieces[: at + 1] + self._pieces[at:])

    def _insert_a_foreign_piece(self) -> bytes:
        at = self._randomly.randrange(len(self._pieces) + 1)
        return b"".join([*self._pieces[:at], self._randomly.choice(self._others), *self._pieces[at:]])

    def _put_a_foreign_piece_in_the_place_of_one(self) -> bytes:
        at = self._randomly.randrange(len(self._pieces))
        return b"".join([*self._pieces[:at], self._randomly.choice(self._others), *self._pieces[at + 1 :]])

    def _zero(self) -> bytes:
        at = self._randomly.randrange(len(self.data))
        length = min(self._randomly.choice([1, 16, 512, 4096]), len(self.data) - at)
        return self.data[:at] + bytes(length) + self.data[at + length :]
