"""Gemini's messages as Google's API writes them: camelCase names and standard base64.

The Python SDK's models dump snake_case names and URL-safe base64. Go's ``genai`` reads neither (observed with google-genai 3.4).
Changed are the names that the API gives to a content and its parts (``Content`` and ``Part`` in
``google.ai.generativelanguage``), and nothing inside a tool's arguments or results. Nothing here does I/O.
"""

from __future__ import annotations

import re
from typing import Any

_PART = {
    "inline_data": "inlineData",
    "file_data": "fileData",
    "function_call": "functionCall",
    "function_response": "functionResponse",
    "executable_code": "executableCode",
    "code_execution_result": "codeExecutionResult",
    "thought_signature": "thoughtSignature",
    "video_metadata": "videoMetadata",
    "media_resolution": "mediaResolution",
}
_WITHIN = {
    "inlineData": {"mime_type": "mimeType", "display_name": "displayName"},
    "fileData": {"mime_type": "mimeType", "file_uri": "fileUri", "display_name": "displayName"},
    "functionCall": {"partial_args": "partialArgs", "will_continue": "willContinue"},
    "functionResponse": {"will_continue": "willContinue"},
    "videoMetadata": {"start_offset": "startOffset", "end_offset": "endOffset"},
}
_URL_SAFE = re.compile(r"[A-Za-z0-9_-]+={0,2}")


def as_the_api_writes(message: dict[str, Any]) -> dict[str, Any]:
    """The message with the names and the base64 of the API; the same object if it has them."""
    parts = message.get("parts")
    if type(parts) is not list:
        return message
    changed = [_part(part) if type(part) is dict else part for part in parts]
    return message if changed == parts else {**message, "parts": changed}


def _part(part: dict[str, Any]) -> dict[str, Any]:
    part = _renamed(part, _PART)
    for name, names in _WITHIN.items():
        if type(part.get(name)) is dict:
            part[name] = _renamed(part[name], names)
    if "thoughtSignature" in part:
        part["thoughtSignature"] = _standard_base64(part["thoughtSignature"])
    inline = part.get("inlineData")
    if type(inline) is dict and "data" in inline:
        inline["data"] = _standard_base64(inline["data"])
    return part


def _renamed(value: dict[str, Any], names: dict[str, str]) -> dict[str, Any]:
    """A copy with other names, in the same order. A name stays if the other one is there too."""
    return {(names[key] if key in names and names[key] not in value else key): member for key, member in value.items()}


def _standard_base64(value: Any) -> Any:
    """URL-safe base64 in the standard alphabet, padded; anything else as it is."""
    if type(value) is not str or not _URL_SAFE.fullmatch(value):
        return value
    digits = value.rstrip("=").translate({ord("-"): "+", ord("_"): "/"})
    return digits + "=" * (-len(digits) % 4)
