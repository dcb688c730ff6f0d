"""The border of the command line: help, misuse, errors, Ctrl-C, and a closed output.

A script needs to tell well from failed from misused, and a person needs one clear line and never a traceback.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cli.helpers import (
    COMMAND,
    ENVIRONMENT,
    Cli,
    conversation,
    damage,
    lines,
    loaded_by,
    loaded_by_command,
    tear,
    too_wide,
)
from transcript_store import ConversationLibrary, ConversationStore, __version__
from transcript_store.cli import manage

COMMANDS = [
    "chat",
    "record",
    "show",
    "list",
    "search",
    "usage",
    "index",
    "import",
    "keep",
    "mcp",
    "view",
    "serve",
    "export",
    "backup",
    "restore",
    "session",
    "ship",
    "bisect",
    "fork",
    "rename",
    "delete",
    "prune",
    "generations",
    "secrets",
    "verify",
    "repair",
    "head",
    "snapshot",
    "seal",
    "unseal",
    "shred",
    "rotate-key",
    "new-key",
    "writers",
    "programs",
    "doctor",
    "demo",
]


def test_version(cli: Cli) -> None:
    """--version prints the program's name and the package's version."""
    assert cli("--version") == (0, f"transcript-store {__version__}\n", "")


def test_as_a_module() -> None:
    """`python -m transcript_store` is the same command, under its own name."""
    command = [sys.executable, "-m", "transcript_store", "--version"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"transcript-store {__version__}\n", "")


@pytest.mark.parametrize("command", [command for command in COMMANDS if command != "chat"])  # tests/cli/chat has that
def test_help(cli: Cli, command: str) -> None:
    """Each command has a help text with examples."""
    code, out, err = cli(command, "--help")
    assert (code, err) == (0, "")
    assert "examples:" in out
    assert f"transcript-store {command}" in out


def test_help_of_all(cli: Cli) -> None:
    """The help names every command and what the exit codes mean. It is the answer to the program's name alone, too."""
    assert cli() == cli("--help")
    out = cli("--help").out
    named = [line.split()[0] for line in out.splitlines() if re.match(r" {4}[a-z]", line)]
    assert named == COMMANDS
    assert "exit codes:" in out
    assert out.endswith("\n\n`transcript-store COMMAND --help` says more.\n")  # a paragraph of its own


@pytest.mark.parametrize(
    "command", ["", *(command for command in COMMANDS if command != "chat")]
)  # tests/cli/chat has that
def test_a_help_fits_into_eighty_columns(cli: Cli, command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A terminal cuts words at its edge, wherever that is."""
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(sys, "argv", ["transcript-store"])
    _, out, _ = cli(*filter(None, (command, "--help")))
    assert too_wide(out) == []


def test_help_is_quick() -> None:
    """Help loads no command, none of the store, and nothing that only they need."""
    script = (
        "import sys; from transcript_store.cli import main\n"
        "try: main(['--help'])\n"
        "except SystemExit: sys.stderr.write(' '.join(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    loaded = set(done.stderr.split())
    assert not {"subprocess", "filelock", "tempfile", "asyncio", "orjson"} & loaded
    ours = {name for name in loaded if name.startswith("transcript_store.")}
    assert ours == {
        "transcript_store._lazy",
        "transcript_store.errors",
        "transcript_store.hints",
        "transcript_store.display",
        "transcript_store.cli",
        "transcript_store.cli._shared",
        "transcript_store.cli._shared.arguments",
        "transcript_store.cli._shared.terminal",
    }


HEAVY = """
asyncio bz2 cryptography difflib email html http lzma markdown_it multiprocessing nh3 random shutil sqlite3 subprocess
tempfile unicodedata wcwidth zipfile
_conversation.repair _conversation.verify _doctor _library _snapshots conversation formats
formats._registry formats._plan backends importing library maintenance naming redaction search snapshots sources view
view._page view._pages view.served
"""
"""What takes more than a millisecond to import, and is not needed by each command."""


@pytest.mark.parametrize(
    ("program", "needed"),
    [
        ("from transcript_store import ConversationStore", "conversation"),
        (("list", "{library}"), "search sqlite3 unicodedata"),
        (("show", "{library}/c"), "conversation formats naming view"),
        (("search", "hi", "{library}"), "search sqlite3 unicodedata"),
        (
            ("export", "{library}/c", "--to", "markdown"),
            "_library conversation formats formats._plan html library markdown_it naming redaction unicodedata view view._pages",
        ),
    ],
    ids=["import", "list", "show", "search", "export"],
)
def test_a_start_loads_what_it_needs(program: str | tuple[str, ...], needed: str, tmp_path: Path) -> None:
    """Of what is slow to import, a program that keeps a conversation, or a command, loads what it needs and nothing else."""
    call = {"type": "tool_use", "id": "1", "name": "sh", "input": {"command": "ls"}}
    said: list[dict[str, Any]] = [{"role": "user", "content": "hi…"}, {"role": "assistant", "content": [call]}]
    words = [] if isinstance(program, str) else [word.format(library=tmp_path) for word in program]
    # What has no title is named by its first prompt, which an index reads once.
    conversation(tmp_path / "c", said, labels={"title": "a title"} if "search" in needed else {})
    loaded = loaded_by(program) if isinstance(program, str) else loaded_by_command(*words)
    loaded |= {name.partition(".")[0] for name in loaded}
    assert {*HEAVY.split()} & loaded <= {*needed.split()}


@pytest.mark.parametrize(
    "arguments",
    [
        ("remember", "x"),
        ("show",),
        ("show", ""),
        ("show", "x", "--last", "-1"),
        ("show", "x", "--last", "²"),
        ("show", "x", "--loud"),
        ("record", "x", "--durability", "none"),
        ("demo", "--rounds", "0"),
        ("demo", "--rounds", "many"),
        ("demo", "--directory", ""),
    ],
)
def test_misuse(cli: Cli, arguments: tuple[str, ...]) -> None:
    """A command that makes no sense is exit code 2 and a usage line, and touches nothing."""
    code, out, err = cli(*arguments)
    assert (code, out) == (2, "")
    assert err.startswith("usage: transcript-store")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("search", "--lmit", "3", "x"), "search: error: unrecognized arguments: --lmit"),
        (("snapshot", "list", "--store", "s", "--sealed"), "snapshot list: error: unrecognized arguments: --sealed"),
        (("fork",), "fork: error: the following arguments are required: CONVERSATION "),
        (("record", "c", "--wait", "long"), "record: error: argument --wait: 'long' is not a number of seconds"),
    ],
)
def test_misuse_is_told_by_the_command_that_was_meant(cli: Cli, arguments: tuple[str, ...], says: str) -> None:
    """Its usage is shown, and how to see more: that of the whole program would name none of the command's options."""
    command = says.partition(":")[0]
    code, out, err = cli(*arguments)
    assert (code, out) == (2, "")
    assert err.startswith(f"usage: transcript-store {command} [-h]")
    assert says in err
    assert err.endswith(f"(`transcript-store {command} --help` says more)\n")


@pytest.mark.parametrize(
    ("arguments", "meant"),
    [
        (("lst",), "list"),
        (("snaphot", "list"), "snapshot"),
        (("snapshot", "lits"), "list"),
        (("search", "x", "--sort", "newst"), "newest"),
    ],
)
def test_a_mistyped_choice_is_told_which_one_it_nearly_is(cli: Cli, arguments: tuple[str, ...], meant: str) -> None:
    """Thirty commands in a row are not read by whoever left a letter out. What is near nothing gets no guess."""
    code, out, err = cli(*arguments)
    assert (code, out) == (2, "")
    assert f"; did you mean {meant}? (`transcript-store" in err
    assert "did you mean" not in cli("frobnicate").err
    assert "did you mean" not in cli("show", "x", "--last", "lst").err


@pytest.mark.parametrize(
    ("arguments", "meant"),
    [
        (("import", "x", "--library", "chats"), "--into"),
        (("fork", "x", "--to", "chats"), "--into"),
        (("show", "x", "--tail", "5"), "--last"),
        (("show", "x", "--folow"), "--follow"),
    ],
)
def test_an_option_by_the_name_that_it_has_elsewhere_is_told(cli: Cli, arguments: tuple[str, ...], meant: str) -> None:
    code, out, err = cli(*arguments)
    assert (code, out) == (2, "")
    assert f"; did you mean {meant}? (`transcript-store" in err
    assert "did you mean" not in cli("list", "--colour", "chats").err
    assert "; write an argument that starts with a minus after -- (" in cli("search", "-kitchen", "chats").err


@pytest.mark.parametrize("command", ["show", "verify", "head"])
def test_nothing_there(cli: Cli, tmp_path: Path, command: str) -> None:
    """A conversation that is not there is exit code 1 and one line that names the path."""
    code, out, err = cli(command, str(tmp_path / "none"))
    assert (code, out) == (1, "")
    assert err.startswith(f"transcript-store: {tmp_path}/none: there is no conversation")
    assert err.count("\n") == 1


@pytest.mark.parametrize("command", ["show", "head", "record"])
def test_damage_is_one_line(cli: Cli, tmp_path: Path, command: str) -> None:
    """A damaged transcript is exit code 1 and one line that says where, and which command says more."""
    directory = conversation(tmp_path / "c", [{"content": "first"}, {"content": "second"}])
    damage(tmp_path / "c", b"first", b"FIRST")
    code, out, err = cli(command, directory)
    assert (code, out) == (1, "")
    assert "transcript.jsonl, line 2 (record 1), byte" in err
    assert f"`transcript-store repair {directory}`" in err
    assert err.count("\n") == 1


def test_a_library_is_no_conversation(cli: Cli, tmp_path: Path) -> None:
    """What the folder is, and which command wants it."""
    conversation(tmp_path / "library" / "c", [{"content": "first"}])
    code, out, err = cli("show", str(tmp_path / "library"))
    assert (code, out) == (1, "")
    assert f"this is a library, a directory of conversations: `transcript-store list {tmp_path}/library` lists" in err
    err = cli("show", f"{tmp_path}/library/c/transcript.jsonl").err  # as a shell completes it
    assert f"this is a file of a conversation; name the conversation: {tmp_path}/library/c\n" in err
    conversation(tmp_path / "library" / "0b8f5c1e-4f6d-4f0e-9d5b-2f6f0f3c9a51", [{"content": "first"}])
    err = cli("show", str(tmp_path / "library")).err  # its folders are called by their ids, which says it already
    assert f"; `transcript-store list {tmp_path}/library` lists them; name one" in err
    assert err.count(" a library") == 1


def test_another_writer(cli: Cli, tmp_path: Path) -> None:
    """A second writer is told which process has the conversation; readers are not kept out."""
    with ConversationStore(tmp_path / "c") as store:
        store.initialize()
        code, _, err = cli("record", str(tmp_path / "c"), stdin=lines({"role": "user"}))
        assert code == 1
        assert "this process is writing to it" in err
        assert err.endswith("; --wait SECONDS waits for its end\n")
        assert cli("head", str(tmp_path / "c")).code == 0
        assert store.get_messages() == []


def test_warnings_are_shown_once(cli: Cli, tmp_path: Path) -> None:
    """When opening cuts a torn tail, the library's warning is a line on standard error, and only for that command."""
    directory = conversation(tmp_path / "c")
    tear(tmp_path / "c")
    code, out, err = cli("record", directory)
    assert (code, out) == (0, "")
    assert err.count("\n") == 1
    assert "recovered a torn tail" in err
    assert cli("record", directory).err == ""


def test_interrupted(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C is exit code 130 and no word."""

    def interrupted(_: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(manage, "run_head", interrupted)
    assert cli("head", str(tmp_path)) == (130, "", "")


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (BrokenPipeError(), 141, ""),
        (OSError(5, "Input/output error"), 1, "transcript-store: cannot continue: Input/output error\n"),
    ],
)
def test_streams_that_fail(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: OSError, code: int, said: str
) -> None:
    """An error of the standard streams is an exit code and at most one line."""

    def failing(_: object) -> int:
        raise error

    monkeypatch.setattr(manage, "run_head", failing)
    assert cli("head", str(tmp_path)) == (code, "", said)


def test_interrupted_while_waiting(tmp_path: Path) -> None:
    """Ctrl-C while `record` waits for its next line ends it with 130; what was acknowledged stays, and the lock is free."""
    script = (  # a job in the background is born deaf to Ctrl-C
        "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "from transcript_store.cli import main; sys.exit(main(['record', sys.argv[1]]))"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path / "c")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=ENVIRONMENT,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdin.write(lines({"role": "user", "content": "kept"}))
        process.stdin.flush()
        assert process.stdout.readline() == b"1\n"
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=60) == 130
        assert process.stderr.read() == b""
    with ConversationStore(tmp_path / "c") as store:
        store.load()
        assert store.get_messages() == [{"role": "user", "content": "kept"}]
        assert store.recovery is None


@pytest.mark.parametrize("arguments", [("show",), ("show", "--json")])
def test_a_closed_pipe_ends_show_quietly(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    """`show … | head -1` ends quietly with 141, as a program that SIGPIPE ended would."""
    directory = conversation(tmp_path / "c", [{"content": "x" * 9000}] * 30)
    with subprocess.Popen(
        [*COMMAND, *arguments, directory], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=ENVIRONMENT
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.wait(timeout=60) == 141
        assert process.stderr.read() == b""


def test_record_stops_if_its_acknowledgements_cannot_be_written(tmp_path: Path) -> None:
    """`record` stops calmly when its acknowledgements cannot be delivered; what it stored is whole."""
    with subprocess.Popen(
        [*COMMAND, "record", str(tmp_path / "c")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=ENVIRONMENT,
    ) as process:
        assert process.stdout is not None
        process.stdout.close()
        process.stdout = None
        _, err = process.communicate(lines({"n": 1}, {"n": 2}), timeout=60)
    assert (process.returncode, err) == (141, b"")
    with ConversationStore(tmp_path / "c") as store:
        store.load()
        assert store.get_messages() == [{"n": 1}]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize(
    "arguments", [("--help",), ("--version",), ("help", "show"), ("show", "DIR"), ("verify", "DIR")]
)
def test_output_refused(tmp_path: Path, arguments: tuple[str, ...], unbuffered: str) -> None:
    """An output that takes nothing (a full disk) is exit code 1 and one line, at the end too; argparse itself ignores it."""
    directory = conversation(tmp_path / "c", [{"content": "x"}])
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [*COMMAND, *(directory if a == "DIR" else a for a in arguments)],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            env={**ENVIRONMENT, "PYTHONUNBUFFERED": unbuffered},
        )
    assert (done.returncode, done.stderr) == (
        1,
        "transcript-store: cannot continue: standard output: No space left on device\n",
    )


@pytest.mark.parametrize(
    ("arguments", "code", "code_if_both"), [(("nosuch",), 2, 2), (("show", "DIR"), 1, 1), (("-h",), 0, 141)]
)
def test_standard_error_without_a_reader(
    tmp_path: Path, arguments: tuple[str, ...], code: int, code_if_both: int
) -> None:
    """`2>&1 | head -1`: Python flushed it again at exit, and the exit code was 120."""
    words = [str(tmp_path / "none") if word == "DIR" else word for word in arguments]
    for is_both, expected in ((False, code), (True, code_if_both)):
        reading, writing = os.pipe()
        os.close(reading)
        output = writing if is_both else subprocess.DEVNULL
        done = subprocess.run([*COMMAND, *words], stdout=output, stderr=writing, check=False, env=ENVIRONMENT)
        os.close(writing)
        assert done.returncode == expected


def test_closed_streams(tmp_path: Path) -> None:
    """A command whose standard streams are closed does its work and fails at nothing."""
    directory = conversation(tmp_path / "c", [{"content": "x"}])
    with ConversationLibrary(tmp_path / "used").create(
        messages=[{"role": "assistant"}], extras=[{"usage": {"input_tokens": 1}}], labels={"title": "t"}
    ):
        pass
    for command in (
        f"show '{directory}' >&-",
        f"record '{directory}' <&-",
        f"show '{tmp_path}/none' 2>&-; [ $? = 1 ]",
        f"usage '{tmp_path}/used' --by session,project >&-",
    ):
        done = subprocess.run(
            ["/bin/sh", "-c", f"'{sys.executable}' -m transcript_store {command}"],
            capture_output=True,
            check=False,
            env=ENVIRONMENT,
        )
        assert (done.returncode, done.stdout, done.stderr) == (0, b"", b""), command


@pytest.mark.parametrize("command", ["show", "verify", "head", "fork", "delete", "generations", "rename"])
def test_a_mistyped_path_is_not_to_be_created(cli: Cli, tmp_path: Path, command: str) -> None:
    """Whoever mistyped a path is not told to create a conversation there; where to look for it is said."""
    conversation(tmp_path / "today", [{"content": "first"}])
    code, _, err = cli(command, str(tmp_path / "tody"), *(("title",) if command == "rename" else ()))
    assert code == 1
    assert f"{tmp_path}/tody: there is no " in err
    assert "check the path: `transcript-store list DIR` lists the conversations in a directory" in err
    assert "creat" not in err
    assert "record" not in err
    assert "initialize" not in err


def test_counts_and_places(cli: Cli, tmp_path: Path) -> None:
    """One byte is a byte, message 5 is told as record 5 beside its line, and a path is printed once."""
    directory = conversation(tmp_path / "c", [{"content": f"message {n}"} for n in range(1, 7)])
    damage(tmp_path / "c", b"message 5", b"message\0 5")
    err = cli("head", directory).err
    assert "line 6 (record 5), byte " in err
    assert "it holds 1 NUL byte: " in err
    assert "line 6 (record 5), byte " in cli("repair", directory).out
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "file").write_text("")
    out = cli("verify", str(tmp_path / "mine")).out
    assert out.count(f"{tmp_path}/mine\n") == 1
    assert out.startswith(f"{tmp_path}/mine\n")


def test_ctrl_c_while_the_program_begins_is_quiet(tmp_path: Path) -> None:
    """Whatever is being imported, Ctrl-C stops with 130 and no traceback: it comes here as the last of those imports begins."""
    tmp_path.joinpath("sitecustomize.py").write_text(
        "import os, signal, sys\n"
        "class Interrupt:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'argparse':\n"
        "            os.kill(os.getpid(), signal.SIGINT)\n"
        "sys.meta_path.insert(0, Interrupt())\n"
    )
    path = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    for start in (
        ["-m", "transcript_store"],
        ["-c", "from transcript_store.__main__ import main; raise SystemExit(main())"],
    ):
        run = subprocess.run(
            [sys.executable, *start, "--version"],
            capture_output=True,
            env={**os.environ, "PYTHONPATH": path},
            check=False,
        )
        assert (run.returncode, run.stdout, run.stderr) == (130, b"", b"")
