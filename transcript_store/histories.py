"""A provider's native history, and what was said in it: what a chat client needs to make snapshots, and to go on from one."""

from transcript_store._snapshots.adapter import PROMPT_ROLES, native_history, said_in
from transcript_store._snapshots.snapshot import OURS

__all__ = ["OURS", "PROMPT_ROLES", "native_history", "said_in"]
