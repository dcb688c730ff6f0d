"""A format that another package adds: the example of docs/import.md, installed, and packages that are broken."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.helpers import Cli
from transcript_store import ConversationLibrary
from transcript_store.exporting import ExportError, export, targets
from transcript_store.importing import discover, import_conversations
from transcript_store.sources import UnusableFormatError, added_formats, added_names, session_folders

PAGE = (Path(__file__).parents[2] / "docs/import.md").read_text()
SECTION = PAGE[PAGE.index("## Add a format") : PAGE.index("## Foreign files are data")]
MODULE = re.findall(r"```python\n(.*?)```\n", SECTION, re.DOTALL)[0]
ENTRY_POINTS = re.findall(r"```toml\n(.*?)```", SECTION, re.DOTALL)[0]
SAID = [("system", "You are parley."), ("user", "What is here?"), ("assistant", "```shell\nls\n```")]
LOG = "".join(
    json.dumps({"role": role, "content": text, "timestamp": f"2026-11-23T10:00:0{n}+00:00"}) + "\n"
    for n, (role, text) in enumerate(SAID)
)


@pytest.fixture
def site(tmp_path, monkeypatch):
    """A folder of installed packages, on the path."""
    folder = tmp_path / "site-packages"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))
    yield folder
    for name in [name for name, module in sys.modules.items() if str(folder) in str(getattr(module, "__file__", ""))]:
        del sys.modules[name]


def install(site: Path, name: str, entry_points: str, **modules: str) -> None:
    """As pip leaves a distribution: its modules, and a folder with what it is and what it adds."""
    about = site / f"{name.replace('-', '_')}-1.2.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.2\n")
    (about / "entry_points.txt").write_text(f"[transcript_store.formats]\n{entry_points}\n")
    (about / "RECORD").write_text("")
    for module, text in modules.items():
        (site / f"{module}.py").write_text(text)


@pytest.fixture
def parley(site):
    install(site, "parley-format", ENTRY_POINTS.partition("\n")[2].replace('"', ""), parley_format=MODULE)


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A home directory in which parley keeps a conversation."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    folder = tmp_path / ".local/share/parley/logs/2026-11-23-a-walk"
    folder.mkdir(parents=True)
    (folder / "conversation.jsonl").write_text(LOG)
    return tmp_path


def test_what_a_package_adds_is_found_read_and_written(parley, home, library):
    """Its places are looked at, its reader is asked before the generic one, its writer writes into its place."""
    (found,) = [one for one in discover() if one.program == "parley"]
    (report,) = import_conversations([found], library)
    assert (report.action, report.format, report.messages, report.findings) == ("created", "parley", 3, ())
    assert report.id is not None
    assert [one.action for one in import_conversations([found], library)] == ["unchanged"]
    with library.open(report.id, read_only=True) as store:
        assert [(one["role"], one["content"]) for one in store.get_messages()] == SAID
        assert store.get_records()[0].at == "2026-11-23T10:00:00.000000Z"
    export(library, report.id, to="original", output=home / "again.jsonl")
    assert (home / "again.jsonl").read_text() == LOG
    assert "parley" in targets()
    done = export(library, report.id, to="parley")
    assert done.command == f"parley --name {done.session}"
    assert [Path(path) for path in done.paths] == [home / f".local/share/parley/logs/{done.session}/conversation.jsonl"]
    (again,) = import_conversations(done.paths, ConversationLibrary(home / "other"))
    assert (again.format, again.messages) == ("parley", 3)


def test_the_commands_know_it(parley, home, cli: Cli):
    """--format and --to take its name, --all finds its places."""
    into = ("--into", str(home / "chats"))
    assert "parley" in cli("import", *into).out
    assert "1 created" in cli("import", "--all", *into).out
    log = str(next(home.glob(".local/share/parley/logs/*/conversation.jsonl")))
    assert "unchanged" in cli("import", log, "--format", "parley", *into).out
    code, out, _ = cli("export", f"{home}/chats/last", "--to", "parley", "--output", str(home / "theirs"))
    assert (code, "parley --name" in out) == (0, True)
    code, _, err = cli("import", log, "--format", "parleye", *into)
    assert (code, "parleye" in err, "claude-code" in err) == (2, True, True)


def test_a_package_is_imported_only_when_its_format_may_be_meant(site, home, library):
    """Not with ours, not by a name alone, and never by the import of this library."""
    install(site, "loud", "loud = loud_format:loud", loud_format="raise SystemError('imported')")
    log = next(home.glob(".local/share/parley/logs/*/conversation.jsonl"))
    code = "import sys, transcript_store, transcript_store.formats; assert 'loud_format' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, env={"PYTHONPATH": str(site)})
    assert added_names() == ("loud",)
    (report,) = import_conversations([log], library, format="jsonl")
    assert report.action == "created"
    assert report.id is not None
    export(library, report.id, to="markdown", output=home / "a.md")
    export(library, report.id, to="codex", output=home / "codex")
    assert "loud_format" not in sys.modules


GOOD = "from transcript_store.formats import Format\nfrom parley_format import *\n"
BROKEN = {
    "a_syntax_error": ("a = broken:a", "def (", "SyntaxError"),
    "a_module_that_is_not_there": ("a = nowhere:a", "", "ModuleNotFoundError"),
    "a_member_that_is_not_there": ("a = broken:a", "", "AttributeError"),
    "no_format": ("a = broken:a", "a = 7", "not a transcript_store.formats.Format, but int"),
    "an_empty_one": ("a = broken:a", GOOD + "a = Format()", "neither a reader nor a writer"),
    "another_name": (
        "a = broken:a",
        GOOD + "a = Format(reader=ParleyReader())",
        "its reader has another name, 'parley'",
    ),
    "a_place_of_another": (
        "parley2 = broken:a",
        GOOD
        + "class R(ParleyReader):\n    name = 'parley2'\na = Format(reader=R(), session_folders=parley.session_folders)",
        "its place has another name, 'parley'",
    ),
    "a_name_of_ours": ("codex = broken:a", GOOD + "a = parley", "taken"),
    "a_path_for_a_name": ("../a = broken:a", GOOD + "a = parley", "small letters"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_package_is_named_and_the_rest_continues(case, site, parley, home, library):
    """Import goes on with the others, its report says who and why."""
    entry_point, module, why = BROKEN[case]
    install(site, "broken-format", entry_point, broken=module)
    first, second = import_conversations(home.glob(".local/share/parley/logs/*/*"), library)
    assert (first.action, first.source) == ("refused", "broken-format 1.2")
    assert why in str(first.reason)
    assert (second.action, second.format) == ("created", "parley")
    assert [place.program for place in session_folders() if "a" in (place.program, place.folder)] == []
    assert [one for one in discover() if one.program == "parley"]


def test_a_broken_format_that_was_named_is_an_error(site, home, library, cli: Cli):
    """Before anything is read or written."""
    install(site, "broken-format", "a = broken:a", broken="raise OSError('no licence')")
    for call in (
        lambda: import_conversations([home], library, format="a"),
        lambda: export(library.create(messages=[{"role": "user", "content": "hi"}]), to="a"),
    ):
        with pytest.raises(UnusableFormatError, match=r"broken-format 1.2.*OSError: no licence"):
            call()
    code, _, err = cli("import", str(home), "--format", "a", "--into", str(home / "chats"))
    assert (code, "broken-format 1.2" in err) == (1, True)


def test_two_packages_with_one_name_are_both_refused(site, parley, home, library):
    """Which one came first would decide what the sessions are."""
    install(site, "second-format", "parley = parley_format:parley")
    formats, unusable = added_formats()
    assert formats == {}
    assert all("parley-format 1.2, second-format 1.2" in str(error) for error in unusable)


def test_a_reader_that_takes_the_ids_of_another_format_is_refused(site, parley, home, library):
    """Its plans say whose they are; a plan of another's name would meet that one's conversations."""
    module = GOOD + (
        "from dataclasses import replace\n"
        "class A(ParleyReader):\n    name = 'a'\n"
        "    def plans(self, source):\n        return [replace(p, format='codex') for p in ParleyReader.plans(self, source)]\n"
        "a = Format(reader=A())\n"
    )
    install(site, "broken-format", "a = broken:a", broken=module)
    (report,) = import_conversations(home.glob(".local/share/parley/logs/*/*"), library, format="a")
    assert (report.action, "the format 'codex'" in str(report.reason)) == ("refused", True)


def test_a_reader_that_cannot_even_say_whether_it_is_one(site, parley, home, library):
    """It is passed over, and reported."""
    module = GOOD + (
        "class A(ParleyReader):\n    name = 'a'\n    def recognizes(self, head):\n        raise KeyError('x')\n"
        "a = Format(reader=A())\n"
    )
    install(site, "broken-format", "a = broken:a", broken=module)
    failed, read = import_conversations(home.glob(".local/share/parley/logs/*/*"), library)
    assert (failed.action, "was not looked at as a (KeyError" in str(failed.reason)) == ("refused", True)
    assert (read.action, read.format) == ("created", "parley")


def test_a_format_that_is_only_read_or_only_written(site, parley, home, library):
    """What it does not do is said."""
    module = GOOD + (
        "class R(ParleyReader):\n    name = 'r'\nclass W(ParleyWriter):\n    name = 'w'\n"
        "r, w = Format(reader=R()), Format(writer=W())\n"
    )
    install(site, "half-formats", "r = half:r\nw = half:w", half=module)
    with library.create(messages=[{"role": "user", "content": "hi"}]) as store:
        with pytest.raises(ValueError, match="no target 'r'"):
            export(store, to="r")
        with pytest.raises(ValueError, match="name the folder"):
            export(store, to="w")
        assert export(store, to="w", output=home / "w").paths
        with pytest.raises(ExportError, match="no message"):
            export(library.create(), to="w", output=home / "w")
    with pytest.raises(ValueError, match="no format 'w' to read"):
        import_conversations([home], library, format="w")
