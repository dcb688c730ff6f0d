"""Programs as they are shipped, on this machine alone: no account, no key, a home in a scratch folder.

One server on loopback speaks what they speak (Anthropic's messages, OpenAI's responses and chat completions, Gemini's streams), and
keeps each request.
It answers a question that says READ with a call of the program's own tool that reads a file, one that says SEARCH (of Claude Code)
with a call of the MCP tool search_conversations, and then, as any other question, with a sentence. So a session holds a question, a call, its result and an answer, each written by the real program.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

PROGRAMS = {
    "claude-code": ("@anthropic-ai/claude-code@2.1.330", "claude"),
    "codex": ("@openai/codex@0.169.0", "codex"),
    "gemini-cli": ("@google/gemini-cli@0.61.0", "gemini"),
    "pi": ("@mariozechner/pi-coding-agent@0.73.1", "pi"),
    "opencode": ("opencode-ai@1.18.33", "opencode"),
    "kilo": ("@kilocode/cli@7.7.7", "kilo"),
    "copilot": ("@github/copilot@1.0.102", "copilot"),
}
"""By the name of the format: the npm package, pinned, and its command."""
WITH_IMPORT = ("opencode", "kilo", "copilot")
"""Programs that take a session by a command of their own, and give it a place themselves."""
WITH_DATABASE = ("opencode", "kilo")

ANSWER = "The lab answers."
NOTE = "The capital of Freedonia is Zubrowka."
"""What is in the file that the tool reads."""


@dataclass
class Lab:
    """A home, a working folder, and a server that keeps what it is asked."""

    home: Path
    work: Path
    url: str = ""
    requests: list[tuple[str, Any]] = field(default_factory=list)
    """Path and body of each request that asks a model to go on with a conversation, in order."""
    may_answer: threading.Event = field(default_factory=threading.Event)
    has_asked: threading.Event = field(default_factory=threading.Event)

    @property
    def environment(self) -> dict[str, str]:
        """What a program is given: its folder of settings is in the home."""
        return {
            "HOME": str(self.home),
            "PATH": os.environ["PATH"],
            "TERM": "dumb",
            "ANTHROPIC_BASE_URL": self.url,
            "ANTHROPIC_API_KEY": "sk-ant-of-nobody",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "DISABLE_AUTOUPDATER": "1",
            "MCP_CONNECTION_NONBLOCKING": "0",  # it waits for a server to start, however busy the machine is
            "MCP_CONNECT_TIMEOUT_MS": "200000",
            "MCP_TIMEOUT": "200000",
            "ENABLE_TOOL_SEARCH": "false",  # each request names every tool, those of MCP servers too
            "GOOGLE_GEMINI_BASE_URL": self.url,
            "GEMINI_API_KEY": "of-nobody",
            "GEMINI_CLI_TRUST_WORKSPACE": "true",
            "LAB_KEY": "of-nobody",
            "COPILOT_PROVIDER_BASE_URL": f"{self.url}/v1",
            "COPILOT_PROVIDER_API_KEY": "of-nobody",
            "COPILOT_MODEL": "lab",
            "COPILOT_OFFLINE": "true",
            "COPILOT_AUTO_UPDATE": "false",
            "DO_NOT_TRACK": "1",
            **{
                f"{program}_DISABLE_{what}": "1"
                for program in ("OPENCODE", "KILO")
                for what in ("MODELS_FETCH", "AUTOUPDATE", "LSP_DOWNLOAD")
            },
        }

    def run(self, program: str, *arguments: str) -> str:
        """Run a program to its end; what it printed."""
        done = subprocess.run(
            [str(command(program)), *arguments],
            cwd=self.work,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )
        assert done.returncode == 0, f"{program} {arguments}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    @contextmanager
    def held(self, program: str) -> Iterator[subprocess.Popen[bytes]]:
        """A program that runs, in a group of its own: its model does not answer before the end of the block."""
        before = len(self.requests)
        self.may_answer.clear()
        process = subprocess.Popen(
            [str(command(program)), *arguments_of(program, "Wait for me.", None)],
            cwd=self.work,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            while len(self.requests) == before:
                assert process.poll() is None, process.returncode
                self.has_asked.wait(1)
                self.has_asked.clear()
            yield process
        finally:
            self.may_answer.set()
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def ask(self, program: str, question: str, session: str | None = None) -> list[dict[str, Any]]:
        """Ask one question, in a new session or in one that is there; the messages of the last request that it led to."""
        before = len(self.requests)
        printed = self.run(program, *arguments_of(program, question, session))
        assert ANSWER in printed, printed
        path, body = self.requests[-1]
        assert len(self.requests) > before, path
        messages: list[dict[str, Any]] = body.get("messages") or body.get("input") or body.get("contents")
        return messages


def command(program: str) -> Path:
    return Path(os.environ["TRANSCRIPT_STORE_PROGRAMS"]) / "node_modules/.bin" / PROGRAMS[program][1]


def arguments_of(program: str, question: str, session: str | None) -> list[str]:
    """A command line that asks one question, in a new session or in one that is there."""
    resumed = [] if session is None else [session]
    return {
        "claude-code": ["-p", question, *(["--resume", *resumed] if resumed else [])],
        "codex": ["exec", *(["resume", *resumed] if resumed else []), "--skip-git-repo-check", question],
        "gemini-cli": ["-p", question, *(["--resume", *resumed] if resumed else [])],
        "opencode": ["run", "-m", "lab/lab", *(["-s", *resumed] if resumed else []), question],
        "kilo": ["run", "--auto", "-m", "lab/lab", *(["-s", *resumed] if resumed else []), question],
        "copilot": [
            *("--allow-all-tools", "--allow-all-paths", "--no-color", "--disable-builtin-mcps", "--no-auto-update"),
            *(f"--resume={session}" for session in resumed),
            *("-p", question),
        ],
        "pi": ["-p", "--provider", "lab", "--model", "lab", *(["--session", *resumed] if resumed else []), question],
    }[program]


@contextmanager
def opened(scratch: Path) -> Iterator[Lab]:
    """A lab whose programs have their settings; its server ends with it."""
    lab = Lab(scratch / "home", scratch / "work")
    lab.may_answer.set()
    lab.work.mkdir(parents=True)
    (lab.work / "note.txt").write_text(NOTE)
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(lab))
    lab.url = f"http://127.0.0.1:{server.server_port}"
    _write_settings(lab)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield lab
    finally:
        server.shutdown()
        server.server_close()


def _write_settings(lab: Lab) -> None:
    model = {
        "id": "lab",
        "name": "lab",
        "reasoning": False,
        "input": ["text"],
        "contextWindow": 200_000,
        "maxTokens": 8_000,
    }
    model["cost"] = {"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0}
    provider = {"baseUrl": lab.url, "api": "anthropic-messages", "apiKey": "LAB_KEY", "models": [model]}
    lab_model = {"name": "lab", "tool_call": True, "limit": {"context": 200_000, "output": 8_000}}
    of_opencode = {
        "autoupdate": False,
        "share": "disabled",
        "model": "lab/lab",
        "small_model": "lab/lab",
        "permission": {"edit": "allow", "bash": "allow", "external_directory": "allow"},
        "provider": {
            "lab": {
                "npm": "@ai-sdk/openai-compatible",
                "options": {"baseURL": f"{lab.url}/v1", "apiKey": "of-nobody"},
                "models": {"lab": lab_model},
            }
        },
    }
    files = {
        ".config/opencode/opencode.json": json.dumps(of_opencode),
        ".config/kilo/kilo.json": json.dumps(of_opencode),
        ".gemini/settings.json": json.dumps(
            {"security": {"auth": {"selectedType": "gemini-api-key"}}, "privacy": {"usageStatisticsEnabled": False}}
        ),
        ".codex/config.toml": f"""
model = "gpt-5"
model_provider = "lab"
[model_providers.lab]
name = "lab"
base_url = "{lab.url}/v1"
wire_api = "responses"
env_key = "LAB_KEY"
""",
        ".pi/agent/models.json": json.dumps({"providers": {"lab": provider}}),
    }
    for name, text in files.items():
        path = lab.home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


# ---- the server -----------------------------------------------------------------------------------------------------


def _handler(lab: Lab) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._send(b'{"data":[],"models":[]}')

        def do_HEAD(self) -> None:
            self.do_GET()

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or b"{}")
            for end, answer in _ANSWERS.items():
                if self.path.split("?")[0].endswith(end):
                    if end != "/v1/chat/completions" or body.get("tools"):  # a title is asked for without any tool
                        lab.requests.append((self.path, body))
                    lab.has_asked.set()
                    lab.may_answer.wait()
                    return self._send(answer(body, lab.work / "note.txt"), "text/event-stream")
            if ":generateContent" in self.path:  # Gemini CLI asks a small model which model to ask
                text = {"role": "model", "parts": [{"text": '{"model_choice":"pro","reasoning":""}'}]}
                return self._send(json.dumps({"candidates": [{"content": text, "finishReason": "STOP"}]}).encode())
            return self._send(b'{"input_tokens":10,"totalTokens":10}')

        def _send(self, body: bytes, content_type: str = "application/json") -> None:
            self.send_response(200)
            self.send_header("Content-Type", content_type)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    return Handler


def _events(*events: dict[str, Any]) -> bytes:
    named = (f"event: {event['type']}\n" if "type" in event else "" for event in events)
    return "".join(f"{name}data: {json.dumps(event)}\n\n" for name, event in zip(named, events, strict=True)).encode()


def _wants_to_read(last: object, said: str = "READ") -> bool:
    """Whether the last message is a question that says READ."""
    return said in json.dumps(last) and not any(
        word in json.dumps(last) for word in ("tool_result", "functionResponse")
    )


def _messages(body: dict[str, Any], note: Path) -> bytes:
    """An answer of Anthropic's messages; the tools are those of Claude Code and of pi."""
    names = {tool.get("name"): tool["input_schema"].get("properties", {}) for tool in body.get("tools", ())}
    read = next((name for name in ("Read", "read") if name in names), None)
    search = next((name for name in names if name.endswith("search_conversations")), None)
    last = _last_of_user(body["messages"])
    called, given = None, {}
    if read is not None and _wants_to_read(last):
        called, given = read, {"file_path" if "file_path" in names[read] else "path": str(note)}
    elif search is not None and _wants_to_read(last, "SEARCH"):
        called, given = search, {"query": "Freedonia"}
    block: dict[str, Any] = {"type": "text", "text": ""}
    delta: dict[str, Any] = {"type": "text_delta", "text": ANSWER}
    if calls := called is not None:
        block = {"type": "tool_use", "id": f"toolu_{len(body['messages']):04}", "name": called, "input": {}}
        delta = {"type": "input_json_delta", "partial_json": json.dumps(given)}
    message: dict[str, Any] = {
        "id": f"msg_{len(body['messages']):04}",
        "type": "message",
        "role": "assistant",
        "model": "lab",
        "content": [],
    }
    message |= {"stop_reason": None, "stop_sequence": None, "usage": {"input_tokens": 3, "output_tokens": 1}}
    reason = {"stop_reason": "tool_use" if calls else "end_turn", "stop_sequence": None}
    return _events(
        {"type": "message_start", "message": message},
        {"type": "content_block_start", "index": 0, "content_block": block},
        {"type": "content_block_delta", "index": 0, "delta": delta},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": reason, "usage": {"output_tokens": 5}},
        {"type": "message_stop"},
    )


def _last_of_user(messages: list[dict[str, Any]]) -> object:
    """Claude Code puts reminders of its own behind what a person said; the blocks of the last user turn that are not those."""
    last = next((message for message in reversed(messages) if message["role"] == "user"), None)
    if last is None or isinstance(last["content"], str):
        return last
    return [block for block in last["content"] if "<system-reminder>" not in json.dumps(block)]


def _responses(body: dict[str, Any], note: Path) -> bytes:
    """An answer of OpenAI's responses; the tool is that of Codex."""
    number = len(body["input"])
    text = {"type": "output_text", "text": ANSWER, "annotations": []}
    item: dict[str, Any] = {
        "type": "message",
        "id": f"msg_{number}",
        "status": "completed",
        "role": "assistant",
        "content": [text],
    }
    if body["input"][-1].get("type") == "message" and _wants_to_read(body["input"][-1]):
        given = json.dumps({"cmd": f"cat {note}"})
        item = {
            "type": "function_call",
            "id": f"fc_{number}",
            "call_id": f"call_{number}",
            "name": "exec_command",
            "arguments": given,
        }
    usage = {"input_tokens": 3, "input_tokens_details": {"cached_tokens": 0}, "output_tokens": 5, "total_tokens": 8}
    usage["output_tokens_details"] = {"reasoning_tokens": 0}
    response = {"id": f"resp_{number}", "object": "response", "status": "completed", "output": [item], "usage": usage}
    return _events(
        {"type": "response.created", "response": {**response, "status": "in_progress", "output": []}},
        {"type": "response.output_item.added", "output_index": 0, "item": item},
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        {"type": "response.completed", "response": response},
    )


def _completions(body: dict[str, Any], note: Path) -> bytes:
    """An answer of OpenAI's chat completions; the tools are those of OpenCode and of Copilot CLI."""
    tools = (tool["function"] for tool in body.get("tools", ()))
    names = {tool["name"]: tool["parameters"].get("properties", {}) for tool in tools}
    read = next((name for name in ("read", "view") if name in names), None)
    delta: dict[str, Any] = {"role": "assistant", "content": ANSWER}
    reason = "stop"
    last = body["messages"][-1]
    if read is not None and last["role"] == "user" and _wants_to_read(last):
        given = json.dumps({"filePath" if "filePath" in names[read] else "path": str(note)})
        call = {"index": 0, "id": f"call_{len(body['messages']):04}", "type": "function"}
        delta = {"role": "assistant", "tool_calls": [{**call, "function": {"name": read, "arguments": given}}]}
        reason = "tool_calls"
    about = {"id": f"chatcmpl-{len(body['messages'])}", "object": "chat.completion.chunk", "created": 1, "model": "lab"}
    usage = {"prompt_tokens": 3, "completion_tokens": 5, "total_tokens": 8}
    chunks = [
        {**about, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]},
        {**about, "choices": [{"index": 0, "delta": {}, "finish_reason": reason}]},
        {**about, "choices": [], "usage": usage},
    ]
    return _events(*chunks) + b"data: [DONE]\n\n"


def _gemini(body: dict[str, Any], note: Path) -> bytes:
    part: dict[str, Any] = {"text": ANSWER}
    if _wants_to_read(body["contents"][-1]["parts"][-1]):
        part = {"functionCall": {"name": "read_file", "args": {"file_path": str(note)}}}
    candidate = {"content": {"role": "model", "parts": [part]}, "finishReason": "STOP", "index": 0}
    usage = {"promptTokenCount": 3, "candidatesTokenCount": 5, "totalTokenCount": 8}
    return _events({"candidates": [candidate], "usageMetadata": usage, "modelVersion": "lab", "responseId": "r1"})


_ANSWERS: dict[str, Callable[[dict[str, Any], Path], bytes]] = {
    "/v1/messages": _messages,
    "/v1/responses": _responses,
    "/v1/chat/completions": _completions,
    ":streamGenerateContent": _gemini,
}
