"""`transcript-store usage` and `list --sort tokens|cost`: what a person sees of tokens and cost."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest

from tests.cli.helpers import Cli, damage
from transcript_store import ConversationLibrary, ConversationStore

MONDAY, TUESDAY = "2026-01-05T23:59:59Z", "2026-01-06T00:00:00Z"


@pytest.fixture
def chats(tmp_path: Path) -> Path:
    library = ConversationLibrary(tmp_path / "chats")
    for title, model, at, tokens in (("cheap", "m", MONDAY, 1_000_000), ("dear", "n\x1b[2J", TUESDAY, 2_000_000)):
        with library.create(labels={"title": title, "source": "codex", "cwd": f"/home/ada/{title}"}) as conversation:
            extra = {
                "model": model,
                "usage": {"input_tokens": tokens, "cached_input_tokens": tokens // 2, "output_tokens": 5},
            }
            conversation.replace_transcript([{"role": "assistant", "content": "Yes."}], extras=[extra], times=[at])
    (tmp_path / "prices.json").write_text(
        '{"date": "2026-01-01", "models": {"m": {"input": 2, "cache_read": 1, "output": 0}}}'
    )
    return tmp_path / "chats"


def test_a_table_for_people(cli: Cli, chats: Path) -> None:
    code, out, err = cli("usage", str(chats), "--by", "day,model", "--prices", str(chats.parent / "prices.json"))
    heading, *rows, total = out.splitlines()[:4]
    assert (code, err) == (0, "")
    assert heading.split() == [
        "DAY",
        "MODEL",
        "REPLIES",
        "INPUT",
        "CACHE",
        "WRITE",
        "CACHE",
        "READ",
        "OUTPUT",
        "TOTAL",
        "COST",
    ]
    assert [row.split() for row in rows] == [
        ["2026-01-05", "m", "1", "500,000", "0", "500,000", "5", "1,000,005", "$1.50"],
        ["2026-01-06", "n\\x1b[2J", "1", "1,000,000", "0", "1,000,000", "5", "2,000,005", "?"],
    ]
    assert total.endswith("  ≥ $1.50")
    assert (
        "the table of prices (dated 2026-01-01) has none for n\\x1b[2J: ≥ marks a sum without their cost, ? an unknown cost"
        in out
    )
    assert "the cost of the others: $1.50" in out


def test_rows_for_programs(cli: Cli, chats: Path) -> None:
    """JSON and CSV have the same members, uncut, and say by which prices."""
    options = ("usage", str(chats), "--by", "project", "--prices", str(chats.parent / "prices.json"))
    *rows, total = (json.loads(line) for line in cli(*options, "--json").out.splitlines())
    assert [(row["project"], row["cost_usd"], row["unpriced"]) for row in rows] == [
        ("/home/ada/cheap", 1.5, []),
        ("/home/ada/dear", None, ["n\x1b[2J"]),
    ]
    assert (total["total"], total["input_tokens"], total["cache_read_tokens"]) == (True, 3_000_000, 1_500_000)
    assert (total["cost_usd"], total["known_cost_usd"], total["prices"]) == (None, 1.5, "2026-01-01")
    out = cli(*options, "--csv").out
    assert "\x1b" not in out
    assert [(row["project"], row["cost_usd"]) for row in csv.DictReader(io.StringIO(out))] == [
        ("/home/ada/cheap", "1.5"),
        ("/home/ada/dear", ""),
    ]


@pytest.mark.parametrize("name", ["=cmd|'/c calc'!A1", "+1", "-1", "@SUM(1)", "\t=1", "'x", "claude"])
def test_a_name_is_no_formula_of_a_spreadsheet(cli: Cli, tmp_path: Path, name: str) -> None:
    """The names of models and projects come from other programs' files."""
    extras = [{"usage": {"input_tokens": 1}, "model": name}]
    with ConversationLibrary(tmp_path).create(messages=[{"role": "assistant"}], extras=extras, labels={"cwd": name}):
        pass
    options = ("usage", str(tmp_path), "--by", "project,model")
    (row,) = csv.DictReader(io.StringIO(cli(*options, "--csv").out))
    assert json.loads(cli(*options, "--json").out.splitlines()[0])["model"] == name
    expected = name if name in ("'x", "claude") else f"'{name}"
    assert (row["project"], row["model"], row["unpriced"], row["replies"]) == (expected, expected, expected, "1")


@pytest.mark.parametrize(
    ("options", "replies"),
    [
        (("--since", "2026-01-06"), 1),
        (("--until", "2026-01-05"), 1),
        (("--until", "2026-01"), 2),
        (("--project", "CHEAP"), 1),
        (("--source", "pi"), 0),
        (("--since", "2026-01-07"), 0),
    ],
)
def test_only_some(cli: Cli, chats: Path, options: tuple[str, ...], replies: int) -> None:
    total = json.loads(cli("usage", str(chats), *options, "--json").out.splitlines()[-1])
    assert total["replies"] == replies


def test_what_makes_no_sense(cli: Cli, chats: Path) -> None:
    for options in (("--by", "colour"), ("--by", "day,day"), ("--since", "soon"), ("--json", "--csv")):
        assert cli("usage", str(chats), *options).code == 2
    missing = cli("usage", str(chats), "--prices", str(chats / "none.json"))
    assert (missing.code, "none.json: cannot be read" in missing.err) == (1, True)
    own = json.loads(cli("usage", "--show-prices").out)
    assert own["date"]
    assert own["models"]


def test_what_cannot_be_read_is_named(cli: Cli, chats: Path) -> None:
    (transcript, *_) = sorted(chats.glob("*/transcript.jsonl"))
    transcript.write_bytes(transcript.read_bytes().replace(b"Yes.", b"No!."))
    code, _, err = cli("usage", str(chats))
    assert code == 1
    assert f"not counted: {transcript}" in err


def test_many_that_cannot_be_read_for_one_reason_are_counted(cli: Cli, tmp_path: Path) -> None:
    """Not a line for each of 200 sealed conversations."""
    library = ConversationLibrary(tmp_path / "sealed", encryption_key=bytes(32))
    for number, lines in ((3, 3), (5, 2)):
        while len(library.list()) < number:
            library.create(messages=[{"role": "user", "content": "Hello"}]).close()
        code, _, err = cli("usage", library.directory)
        assert (code, err.count("not counted: "), "2 more" in err) == (1, lines, False)
        assert ("4 more for the same reason" in err) == (number == 5)


@pytest.mark.parametrize("sort", ["tokens", "cost"])
def test_a_list_by_what_they_took(cli: Cli, chats: Path, sort: str) -> None:
    rows = [json.loads(line) for line in cli("list", str(chats), "--sort", sort, "--json").out.splitlines()]
    assert [row["tokens"] for row in rows] == [2_000_005, 1_000_005]
    assert cli("list", str(chats), "--sort", sort, "-n", "1").out.split("\t")[-2:] == ["2,000,005", "?\n"]
    assert cli("list", str(chats), "--sort", sort, "--title", "cheap").out.split("\t")[-2] == "1,000,005"


def test_what_is_not_counted_is_named_and_not_zero(cli: Cli, tmp_path: Path) -> None:
    """Damaged conversations; and those in folders with names of their own, which `list` has and a sum leaves out."""
    extras = [{"usage": {"input_tokens": 7}, "model": "claude-opus-4-8"}]
    messages = [{"role": "assistant"}]
    with ConversationStore(tmp_path / "main") as store:
        store.initialize(messages=messages, extras=extras, labels={"cwd": "/home/ada/app"})
    with ConversationLibrary(tmp_path).create(messages=messages, extras=extras) as damaged:
        pass
    damage(Path(damaged.directory), b"input_tokens", b"input-tokens")
    code, out, err = cli("usage", str(tmp_path))
    assert (code, out) == (1, "no reply with a token count was found\n")
    assert f"not counted: {tmp_path}/main: the folder's name is not the conversation's id" in err
    assert f"not counted: {damaged.directory}/transcript.jsonl" in err
    assert f"{tmp_path}/main" not in cli("usage", str(tmp_path), "--project", "web").err
    code, _, err = cli("writers", str(tmp_path))  # that passes over these folders too
    assert (code, f"writers skips 1 folder, such as {tmp_path}/main: the folder's name is not" in err) == (0, True)
    code, out, err = cli("list", str(tmp_path), "--sort", "tokens", "--json")
    assert [(row["tokens"], row["cost_usd"]) for row in map(json.loads, out.splitlines())] == [
        (7, 3.5e-05),
        (None, None),
    ]
    rows = [line.split("\t") for line in cli("list", str(tmp_path), "--sort", "cost").out.splitlines()]
    assert [row[-2:] for row in rows[:2]] == [["7", "$0.00"], ["?", "?"]]
    assert err.count("not counted") == 1
