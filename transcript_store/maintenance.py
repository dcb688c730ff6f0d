"""Looking after a conversation without opening it: verify, salvage and repair; ``doctor`` checks its file system."""

from transcript_store._conversation.repair import Repair, Salvage, repair, salvage
from transcript_store._conversation.verify import Finding, Verification, verify
from transcript_store._doctor import Check, Diagnosis, doctor
from transcript_store._log.repair_plan import Mode as Mode  # noqa: PLC0414 (a type, which the package does not list)
from transcript_store._log.repair_plan import Salvaged

__all__ = [
    "Check",
    "Diagnosis",
    "Finding",
    "Repair",
    "Salvage",
    "Salvaged",
    "Verification",
    "doctor",
    "repair",
    "salvage",
    "verify",
]
