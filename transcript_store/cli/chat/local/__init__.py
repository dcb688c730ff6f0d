"""A small real model on this machine, for a conversation that needs neither a key nor a network.

SmolLM2-135M-Instruct, served by llama.cpp on a loopback address: to a chat client it is a compatible server like every
other. What it answers is a demonstration, and it has no tools.

``weights`` gets it, once; ``server`` serves it in a process of its own, which ends with this one; ``context`` chooses what of a
long conversation it can be told.
"""

MODEL = "SmolLM2-135M-Instruct"
SIZE_BYTES = 98_362_432
"""The size of its weights."""
