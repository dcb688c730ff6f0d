"""A quick sum of bytes that this process verified, to recognize them when it reads them again.

The sum never leaves the process. It has 64 bits and a key that nobody outside knows, so whoever edits a file between two
reads can't aim at it.
"""

from __future__ import annotations

import os
import sys
from hashlib import blake2b

_KEY = os.urandom(16)
# Python hashes bytes with SipHash under a random key of each process, four times as fast as BLAKE2b (PEP 456). Where
# PYTHONHASHSEED fixes that key, or another algorithm is compiled in, the key is no secret.
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
"""The sum of some bytes, the same throughout this process and its forks."""
