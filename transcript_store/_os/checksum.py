"""Are these the bytes that this process verified before? A fast checksum recognizes them when they are read again.

The checksum never leaves the process. It has 64 bits and a key that no other process knows, so an attacker who edits a
file between two reads cannot aim for a collision.
"""

from __future__ import annotations

import os
import sys
from hashlib import blake2b

_KEY = os.urandom(16)
# Python hashes bytes with SipHash under a random key of each process, four times as fast as BLAKE2b (PEP 456). Where
# PYTHONHASHSEED fixes that key, or another algorithm is compiled in, the key is not secret.
_HASH_IS_KEYED = (
    sys.hash_info.algorithm.startswith("siphash")
    and sys.hash_info.hash_bits == 64
    and sys.flags.hash_randomization == 1
    and os.environ.get("PYTHONHASHSEED", "random") in ("", "random")
)


def _hashed(data: bytes | bytearray) -> int:
    return hash(bytes(data))


def _keyed(data: bytes | bytearray) -> int:
    return int.from_bytes(blake2b(data, key=_KEY, digest_size=8).digest())


checksum = _hashed if _HASH_IS_KEYED else _keyed
"""The checksum of some bytes, the same throughout this process and its forks."""
