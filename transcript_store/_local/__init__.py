"""A small real model on this machine, for a conversation that needs neither a key nor a network.

SmolLM2-135M-Instruct, served by llama.cpp on a loopback address: to a chat client it is a compatible server like every
other. What it answers is a demonstration, and it has no tools.

``fetched()`` gets the weights, once; :class:`LocalServer` serves them in a process of its own, which ends with this one; and
``newest_turns()`` chooses what of a long conversation fits into its context.
"""

from transcript_store._local._context import newest_turns, rendered
from transcript_store._local._server import CONTEXT_TOKENS, LocalServer
from transcript_store._local._weights import MODEL, SIZE_BYTES, LocalModelError, fetched, weights_path

__all__ = [
    "CONTEXT_TOKENS",
    "MODEL",
    "SIZE_BYTES",
    "LocalModelError",
    "LocalServer",
    "fetched",
    "newest_turns",
    "rendered",
    "weights_path",
]
