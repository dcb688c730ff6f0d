"""Scripts run as the user nobody: root ignores file modes, so tests of modes need an unprivileged process.

The script starts as root and gives its rights up after one whole life of a conversation, which imports all there is to
import: the folders that Python and the package are installed in may themselves be closed to nobody (CI makes its virtual
environments under a temporary folder of mode 0700).
"""

import textwrap

USER_ID = 65534

_PRELUDE = f"""\
import os, tempfile, traceback
from transcript_store import ConversationStore, verify
with tempfile.TemporaryDirectory() as scratch, ConversationStore(os.path.join(scratch, "c")) as store:
    store.initialize(messages=[dict()])
    store.replace_transcript([])
    verify(store.directory)
os.setgroups([])
os.setresgid({USER_ID}, {USER_ID}, {USER_ID})
os.setresuid({USER_ID}, {USER_ID}, {USER_ID})
os.chdir("/")
"""


def as_nobody(script: str) -> str:
    """Prepare a script to be run by root: it gives up root's rights before its first line."""
    return _PRELUDE + textwrap.dedent(script)
