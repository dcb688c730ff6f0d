"""Install lines that fail: a package that is in no registry told everybody to run ``pip install 'transcript-store[aio]'``.

Seen in every project that is installed from a clone, a wheel or a repository ("No matching distribution found"). An error names the
line that adds the extra to the installation that raised it, whatever that came from; documents name the extra.
"""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from transcript_store import MissingExtraError
from transcript_store.installation import install_command

ROOT = Path(__file__).parents[2]
METADATA = """Metadata-Version: 2.4
Name: transcript-store
Version: 0.2.0
Provides-Extra: aio
Provides-Extra: framework
Requires-Dist: orjson>=3
Requires-Dist: anyio>=4.11; extra == 'aio'
Requires-Dist: framework<2,>=1; extra == 'framework'
Requires-Dist: transcript-store[aio]; extra == 'framework'
"""


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """Puts a record of an installation in front of the one that runs the tests."""
    record = tmp_path / "site" / "transcript_store-0.2.0.dist-info"
    record.mkdir(parents=True)
    (record / "METADATA").write_text(METADATA)
    monkeypatch.syspath_prepend(str(record.parent))

    def write(origin: object, installer: str = "pip") -> list[str]:
        (record / "INSTALLER").write_text(f"{installer}\n")
        if origin is not None:
            (record / "direct_url.json").write_text(origin if isinstance(origin, str) else json.dumps(origin))
        return shlex.split(install_command("framework"))

    return write


def after_install(words: list[str]) -> list[str]:
    return words[words.index("install") + 1 :]


def test_an_editable_clone(installed, tmp_path):
    clone = tmp_path / "a clone, mine"
    clone.mkdir()
    words = installed({"url": clone.as_uri(), "dir_info": {"editable": True}})
    assert after_install(words) == ["-e", f"{clone}[framework]"]


@pytest.mark.parametrize("name", ["clone ü", "transcript_store-0.2.0-py3-none-any.whl"])
def test_a_folder_or_a_wheel(installed, tmp_path, name):
    (tmp_path / name).touch()
    words = installed({"url": (tmp_path / name).as_uri(), "dir_info": {}})
    assert after_install(words) == [f"{tmp_path / name}[framework]"]


def test_a_wheel_that_is_gone(installed, tmp_path):
    """What the extra needs is named, with what the extras that it contains need."""
    words = installed({"url": (tmp_path / "gone.whl").as_uri(), "archive_info": {}})
    assert after_install(words) == ["framework<2,>=1", "anyio>=4.11"]
    assert [Requirement(word).name for word in after_install(words)] == ["framework", "anyio"]


def test_a_repository_at_its_commit(installed):
    words = installed({"url": "https://git.example/t", "vcs_info": {"vcs": "git", "commit_id": "ab12"}})
    (word,) = after_install(words)
    requirement = Requirement(word)
    assert (requirement.extras, requirement.url) == ({"framework"}, "git+https://git.example/t@ab12")


def test_a_download(installed):
    (word,) = after_install(installed({"url": "https://files.example/t-1.whl", "archive_info": {}}))
    assert Requirement(word).url == "https://files.example/t-1.whl"


@pytest.mark.parametrize("origin", [None, "no JSON", "[1]", '{"url": 3}'])
def test_an_index(installed, origin):
    """No record of an origin, or one that cannot be read: the name is what is left."""
    assert after_install(installed(origin)) == ["transcript-store[framework]"]


def test_the_installer_that_is_there(installed, monkeypatch):
    """Uv's environments have no pip, and a pip on PATH may be another Python's."""
    assert installed(None, "uv")[:5] == ["uv", "pip", "install", "--python", sys.executable]
    monkeypatch.setenv("PATH", "/nowhere")
    assert installed(None, "pip")[:4] == [sys.executable, "-m", "pip", "install"]


def test_errors_have_the_line():
    error = MissingExtraError(feature="a page", extra="view")
    assert error.install == install_command("view")
    assert str(error).endswith(error.install)
    assert MissingExtraError(provider="claude-local", extra=None, program="claude").install is None


def test_no_document_prints_a_line_that_works_for_some():
    """Documents name the extra; the guide's table says how an extra is installed."""
    for file in [
        *ROOT.glob("*.md"),
        *ROOT.glob("docs/*.md"),
        *ROOT.glob("examples/*.py"),
        *ROOT.rglob("transcript_store/**/*.py"),
    ]:
        if file.name not in ("CHANGELOG.md", "DECISIONS.md", "installation.py"):
            printed = re.findall(r"pip install '?transcript-store[^'`\n]*", file.read_text(encoding="utf-8"))
            assert [line for line in printed if " @ " not in line] == [], file


def test_the_table_has_every_extra():
    import tomllib

    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    guide = (ROOT / "docs" / "guide.md").read_text(encoding="utf-8")
    assert {extra for extra in extras if f"| `{extra}` |" not in guide} == {"dev", "docs", "bench", "fuzz"}


WITHOUT_EXTRAS = """
import importlib, importlib.abc, pkgutil, sys

class OnlyTheCore(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        first = name.partition(".")[0]
        if first not in core and first not in sys.stdlib_module_names:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

core = {"transcript_store", "_cffi_backend", *sys.argv[1].split()}
sys.meta_path.insert(0, OnlyTheCore())
for name in [name for name in sys.modules if name.partition(".")[0] not in core | set(sys.stdlib_module_names)]:
    del sys.modules[name]

import transcript_store
from transcript_store.cli import _COMMANDS, main

integrations = importlib.import_module("transcript_store.integrations")
modules = [*pkgutil.iter_modules(transcript_store.__path__, "transcript_store.")]
modules += pkgutil.iter_modules(integrations.__path__, "transcript_store.integrations.")
for name in [module.name for module in modules if "._" not in module.name and module.name != "transcript_store.pytest_plugin"]:
    try:
        importlib.import_module(name)
    except transcript_store.MissingExtraError:
        print("names its extra:", name)
for command in _COMMANDS:
    try:
        main([command, "--help"])
    except SystemExit as left:
        assert left.code == 0, command
    print("answered:", command)
"""


def test_every_command_answers_without_any_extra():
    """An annotation's import made `export`, `view` and `session` end with a traceback wherever the extra `view` was not installed."""
    import tomllib

    from transcript_store.cli import _COMMANDS

    needed = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    core = " ".join(re.split(r"[^\w-]", line)[0].replace("-", "_") for line in needed)
    ran = subprocess.run(
        [sys.executable, "-c", WITHOUT_EXTRAS, core], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.count("\nanswered: ") == len(_COMMANDS)
    assert "transcript_store.integrations.pydantic_ai_harness" in ran.stdout  # they name theirs
