"""Change other programs' sessions safely: repair torn files, restore lost sessions, follow moved folders.

Every change is one transaction over files and databases. It is refused while the program runs, a copy of each file is kept beside it, and
the next call undoes an interrupted one (J1–J5 in ``_journal``).

.. code-block:: python

    from transcript_store.sessions import repair_file

    with open("events.jsonl", "w") as torn:
        torn.write('{"type": "user"}{"type": "assistant"}')
    found = repair_file("events.jsonl")  # apply=True writes
    print(found.mends)
"""

from transcript_store.sessions._journal import (
    SessionChangeError,
    Undone,
    finished_changes,
    interrupted_change,
    undo_change,
    undo_interrupted,
)
from transcript_store.sessions._programs import (
    Program,
    RunningProcess,
    folders_of,
    line_programs,
    program_named,
    program_names,
    program_of,
    running_processes,
)
from transcript_store.sessions._relinking import (
    MovedFolder,
    RelinkedConversation,
    RelinkedProgram,
    moved_folder,
    relink_library,
    relink_program,
    relinkable_programs,
)
from transcript_store.sessions._repairing import RepairedFile, repair_file, repair_program, require_not_running
from transcript_store.sessions._restoring import RestoredFile, RestoredSession, find_session, restore_session
from transcript_store.sessions._torn import Mend, MendedFile, mend_document, mend_lines

__all__ = [
    "Mend",
    "MendedFile",
    "MovedFolder",
    "Program",
    "RelinkedConversation",
    "RelinkedProgram",
    "RepairedFile",
    "RestoredFile",
    "RestoredSession",
    "RunningProcess",
    "SessionChangeError",
    "Undone",
    "find_session",
    "finished_changes",
    "folders_of",
    "interrupted_change",
    "line_programs",
    "mend_document",
    "mend_lines",
    "moved_folder",
    "program_named",
    "program_names",
    "program_of",
    "relink_library",
    "relink_program",
    "relinkable_programs",
    "repair_file",
    "repair_program",
    "require_not_running",
    "restore_session",
    "running_processes",
    "undo_change",
    "undo_interrupted",
]
