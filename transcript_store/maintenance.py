"""What is whole, what is not, and what can be kept: of one conversation, in a directory, without opening it."""

from transcript_store._conversation.repair import Repair, repair
from transcript_store._conversation.verify import Finding, Verification, verify
from transcript_store._log.salvage import Gap

__all__ = ["Finding", "Gap", "Repair", "Verification", "repair", "verify"]
