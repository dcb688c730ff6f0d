"""omp (Oh My Pi), a fork of pi: pi's entries after a first line ``title`` of a fixed length, which is rewritten in place.

Differences from pi, in files of 18.2.3:

* the title: the first line's, or the last ``title_change``; the header keeps the first one;
* a session's ``parentSession`` is an id in a fork, and the path of the parent's file in a sub-agent's file;
* ``session_init`` has the system prompt, ``model_change`` one name for provider and model; ``developer`` is the program in the
  user's name;
* a sentence replaces the result of a file that was read again later. So the file does not only grow: an earlier import becomes an
  earlier generation.
"""

from __future__ import annotations

from transcript_store.formats._members import Json, labels, text_in
from transcript_store.formats._pi import Pi, PiFacts, is_omp
from transcript_store.formats._plan import SourceHead


class Omp(Pi):
    """Reads a session file of omp."""

    name = "omp"
    revision = 1

    def recognizes(self, head: SourceHead) -> bool:
        return any(map(is_omp, head.objects))

    def learn(self, facts: PiFacts, value: Json) -> None:
        match value.get("type"):
            case "title":
                facts.chosen_title = text_in(value, "title")
            case "title_change" | "session":
                facts.last(title=value.get("title"))
            case "session_init":
                facts.last(system_prompt=value.get("systemPrompt"))

    def labels_of(self, header: Json) -> dict[str, str]:
        parent = text_in(header, "parentSession").replace("\\", "/")
        name = parent.rpartition("/")[2].removesuffix(".jsonl").rpartition("_")[2]
        return labels(cwd=header.get("cwd"), **({"part_of": name} if "/" in parent else {"forked_from": parent}))
