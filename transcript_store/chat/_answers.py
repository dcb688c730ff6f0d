"""Parse an answer that was asked for as JSON."""

from __future__ import annotations

import json
import re
from typing import Any

from transcript_store.errors import IncompleteResponseError

_FENCED = re.compile(r"\s*```(?:json)?\s*\n(.*)\n\s*```\s*", re.DOTALL)


def parsed_answer(text: str) -> Any:
    """The JSON value in a model's answer. Some models put it into a Markdown fence against instructions; that is accepted.

    Raises:
        IncompleteResponseError: the answer is not JSON. ``text`` is the whole answer.
    """
    fenced = _FENCED.fullmatch(text)
    try:
        return json.loads(fenced[1] if fenced else text)
    except (ValueError, RecursionError) as error:
        raise IncompleteResponseError(reason=f"the answer is not JSON ({error})", text=text) from None
