"""How fast the calls of every day are: ``python benchmarks/everyday.py OLD NEW --targets``, two checkouts side by side, or more.

Each state writes its own files, of the same messages. A round starts one process for each state; in it each operation is made several
times, and the least time counts, for whoever else is at work only adds to it. SQLite and bare code are measured in the same processes,
so that a neighbour meets all of them. The table has the median of the rounds, and the median of their ratios to the first state.
Times are processor time, in which neighbours weigh little; with ``WALL=1`` the clock's, which has the syncs. All states are compiled
first: a checkout that is not takes twice as long to start. ``--targets`` prints the ratios that are held against bounds, of the last
state, and of each state beside it.
"""

import argparse
import gc
import hashlib
import json
import os
import random
import resource
import shutil
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from itertools import pairwise

import orjson

WORDS = ("the", "agent", "reads", "file", "error", "line", '"quoted"', "path/to/x", "value")


def message(i, rng):
    length = int(min(60000, rng.lognormvariate(6.3, 1.3)))
    text = " ".join(rng.choice(WORDS) for _ in range(length // 6))
    if i % 2:
        given = {"path": "/a/b.py", "lines": [1, 2, 3], "o": {"a": True, "b": None}}
        use = {"type": "tool_use", "id": f"toolu_{i:024d}", "name": "read_file", "input": given}
        return {"role": "assistant", "content": [{"type": "text", "text": text}, use]}
    if i % 4:
        return {"role": "user", "content": text}
    result = {"type": "tool_result", "tool_use_id": f"toolu_{i - 1:024d}", "content": [{"type": "text", "text": text}]}
    return {"role": "user", "content": [result]}


def messages(count, seed=3):
    rng = random.Random(seed)
    return [message(i, rng) for i in range(count)]


clock = time.perf_counter if os.environ.get("WALL") else time.process_time


def best(call, times, number=1):
    found = []
    for _ in range(times):
        gc.collect()
        begin = clock()
        for _ in range(number):
            call()
        found.append((clock() - begin) / number)
    return min(found)


# ---- in the process of one interpreter -------------------------------------------------------------------------------


def build(where):
    from transcript_store import ConversationLibrary, ConversationStore

    many = messages(20000)
    with ConversationStore(where + "/single", durability="process-crash") as store:
        store.initialize(provider="claude")
        for one in many:
            store.append_message(one)
    with ConversationStore(where + "/batch", durability="process-crash") as store:
        store.initialize(provider="claude")
        for i in range(0, len(many), 500):
            store.append_messages(many[i : i + 500])
    few = many[:10000]
    with ConversationStore(where + "/ten", durability="process-crash") as store:
        store.initialize(provider="claude")
        for one in few:
            store.append_message(one)
    base = sqlite3.connect(where + "/ten.db")
    base.execute("pragma journal_mode=wal")
    base.execute("create table m(id integer primary key, c text)")
    base.executemany("insert into m(c) values(?)", [(orjson.dumps(m).decode(),) for m in few])
    base.commit()
    base.close()
    library = ConversationLibrary(where + "/library")
    for i in range(30):
        name = f"0b8f5c1e-4f6d-4f0e-9d5b-2f6f0f3c9{i:03x}"
        with library.create(id=name, provider="claude", messages=many[i * 40 : i * 40 + 40]):
            pass


def operations(where):
    """Name, unit, function that gives seconds for one; in groups that --only chooses."""
    from transcript_store import ConversationStore

    scratch = tempfile.mkdtemp(dir=where)
    line = {"role": "user", "content": "x" * 950}

    def opened(name, **more):
        return ConversationStore(f"{where}/{name}", **more)

    def loaded(name, **more):
        store = opened(name, read_only=True)
        store.load(**more)
        return store

    def append(**more):
        store = ConversationStore(tempfile.mkdtemp(dir=scratch) + "/c", **more)
        store.initialize()
        store.append_message(line)
        return best(lambda: store.append_message(line), 7, 400)

    def bare_append():
        handle = os.open(scratch + "/raw", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        behind = b" " * 90 + b"\n"
        return best(lambda: os.write(handle, orjson.dumps(line) + behind), 7, 400)

    def least_append():
        """What the format and L3 ask for: encode, hash, look at the file's name, write."""
        handle = os.open(scratch + "/raw2", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        folder = os.open(scratch, os.O_RDONLY)

        def one():
            body = b'{"seq":%d,"at":"%b","message":' % (7, b"2026-11-27T09:00:00.000000Z") + orjson.dumps(line)
            digest = hashlib.sha256(b"0" * 32)
            digest.update(body)
            os.stat("raw2", dir_fd=folder)
            os.write(handle, body + b',"hash":"' + digest.hexdigest()[:32].encode() + b'"}\n')

        return best(one, 7, 400)

    def sqlite_append():
        base = sqlite3.connect(scratch + "/a.db", isolation_level=None)
        base.execute("pragma journal_mode=wal")
        base.execute("pragma synchronous=normal")
        base.execute("create table m(id integer primary key, c text)")
        return best(lambda: base.execute("insert into m(c) values(?)", (orjson.dumps(line).decode(),)), 7, 400)

    def batch():
        store = ConversationStore(tempfile.mkdtemp(dir=scratch) + "/c", durability="process-crash")
        store.initialize()
        some = messages(500, 5)
        return best(lambda: store.append_messages(some), 5)

    def metadata():
        store = ConversationStore(tempfile.mkdtemp(dir=scratch) + "/c", durability="process-crash")
        store.initialize()
        return best(lambda: store.update_metadata(model="m"), 5, 5)

    def load(name):
        def one():
            store = loaded(name)
            store.close()

        return best(one, 3)

    def get(name):
        store = loaded(name)
        found = best(store.get_messages, 3)
        store.close()
        return found

    def again(name):
        store = loaded(name)
        store.get_messages()
        found = best(store.get_messages, 3)
        store.close()
        return found

    def both(name, **more):
        def one():
            with opened(name, **more) as store:
                store.load()
                return store.get_messages()

        return best(one, 3)

    def bare(name):
        def one():
            with open(f"{where}/{name}/transcript.jsonl", "rb") as file:
                return [orjson.loads(text) for text in file]

        return best(one, 3)

    def hashed(name):
        with open(f"{where}/{name}/transcript.jsonl", "rb") as file:
            data = file.read()
        return best(lambda: hashlib.sha256(data).digest(), 3)

    def sqlite_all(query, times):
        def one():
            base = sqlite3.connect(where + "/ten.db")
            found = [orjson.loads(text) for (text,) in base.execute(query)]
            base.close()
            return found

        return best(one, times)

    def last(**more):
        def one():
            with opened("ten", **more) as store:
                store.load(verify="tail")
                return store.get_messages(last=50)

        return best(one, 40)

    def last_of_loaded():
        store = loaded("ten")
        return best(lambda: store.get_messages(last=50), 20)

    def few():
        store = ConversationStore(tempfile.mkdtemp(dir=scratch) + "/c", durability="process-crash")
        store.initialize(messages=messages(6))
        return best(store.get_messages, 7, 200)

    def python(*words):
        """Processor time, its own and the system's: a start is mostly that, and neighbours disturb it less."""
        found = []
        for _ in range(5):
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            subprocess.run([sys.executable, *words], capture_output=True, check=True)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            found.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
        return min(found)

    def start(*words):
        return python("-c", "import sys; from transcript_store.cli import main; sys.exit(main())", *words)

    one = "0b8f5c1e-4f6d-4f0e-9d5b-2f6f0f3c9000"
    library = where + "/library"
    return {
        "append": {
            "append 1 KB, process-crash (us)": lambda: append(durability="process-crash") * 1e6,
            "append 1 KB, process-crash, in turns (us)": lambda: (
                append(durability="process-crash", hold_lock=False) * 1e6
            ),
            "bare: encode + write (us)": lambda: bare_append() * 1e6,
            "bare: encode + hash + stat + write (us)": lambda: least_append() * 1e6,
            "SQLite: insert, WAL, NORMAL (us)": lambda: sqlite_append() * 1e6,
            "append_messages of 500 (ms)": lambda: batch() * 1e3,
        },
        "meta": {"update_metadata (us)": lambda: metadata() * 1e6, "get_messages of 6 (us)": lambda: few() * 1e6},
        "load": {
            "load 20,000, appended one by one (ms)": lambda: load("single") * 1e3,
            "load 20,000, appended 500 at a time (ms)": lambda: load("batch") * 1e3,
            "get_messages of 20,000 after load, one by one (ms)": lambda: get("single") * 1e3,
            "get_messages of 20,000 after load, 500 at a time (ms)": lambda: get("batch") * 1e3,
            "load + get 20,000, one by one (ms)": lambda: both("single", read_only=True) * 1e3,
            "load + get 20,000, 500 at a time (ms)": lambda: both("batch", read_only=True) * 1e3,
            "bare: loads of each line of 20,000 (ms)": lambda: bare("single") * 1e3,
            "bare: SHA-256 of these bytes (ms)": lambda: hashed("single") * 1e3,
        },
        "ten": {
            "load + get 10,000, reader (ms)": lambda: both("ten", read_only=True) * 1e3,
            "load + get 10,000, writer (ms)": lambda: both("ten") * 1e3,
            "SQLite: select + loads of 10,000 (ms)": lambda: sqlite_all("select c from m", 3) * 1e3,
            "bare: loads of each line of 10,000 (ms)": lambda: bare("ten") * 1e3,
        },
        "last": {
            "last 50 of 10,000, reader (us)": lambda: last(read_only=True) * 1e6,
            "last 50 of 10,000, writer (us)": lambda: last() * 1e6,
            "last 50 of 10,000, loaded already (us)": lambda: last_of_loaded() * 1e6,
            "SQLite: last 50 (us)": lambda: sqlite_all("select c from m order by id desc limit 50", 40) * 1e6,
        },
        "start": {
            "bare: python -c pass (ms of processor)": lambda: python("-c", "pass") * 1e3,
            "import transcript_store + class (ms of processor)": lambda: (
                python("-c", "from transcript_store import ConversationStore") * 1e3
            ),
            "command list (ms of processor)": lambda: start("list", library) * 1e3,
            "command show (ms of processor)": lambda: start("show", f"{library}/{one}") * 1e3,
            "command search (ms of processor)": lambda: start("search", "quoted", library) * 1e3,
            "command export (ms of processor)": lambda: start("export", f"{library}/{one}", "--to", "markdown") * 1e3,
        },
    }


def walked(call):
    """The modules of ours that a call goes through, one for each of our functions that is called."""
    import transcript_store

    base = os.path.dirname(transcript_store.__file__)
    modules = []

    def note(frame, event, _):
        if event == "call" and frame.f_code.co_filename.startswith(base):
            modules.append(frame.f_code.co_filename)

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(before)
    return modules


def counted(modules):
    """How many calls, how many modules, and how often the next call stands in another module."""
    return len(modules), len({*modules}), sum(a != b for a, b in pairwise(modules))


def walks(where):
    """What each call of every day comes to: counts that no machine disturbs."""
    from transcript_store import ConversationStore

    folder = tempfile.mkdtemp(dir=where)
    line = {"role": "user", "content": "x"}
    found = {}
    with ConversationStore(folder + "/c") as store:
        store.initialize(provider="claude")
        for _ in range(5):
            store.append_message(line)
        found["append_message"] = counted(walked(lambda: store.append_message(line)))
        found["get_messages"] = counted(walked(store.get_messages))
        found["update_metadata"] = counted(walked(lambda: store.update_metadata(model="m")))
    with ConversationStore(folder + "/c") as store:
        found["load"] = counted(walked(store.load))
    try:
        store = ConversationStore(folder + "/c", hold_lock=False)
    except TypeError:  # a state that has no turns
        return found
    with store:
        store.load()
        store.append_message(line)
        found["append in a turn"] = counted(walked(lambda: store.append_message(line)))
    return found


def worker(what, where, only):
    if what == "build":
        build(where)
    elif what == "walk":
        print(json.dumps(walks(where)))
    else:
        found = {}
        for group, inside in operations(where).items():
            for name, measured in inside.items() if not only or group in only else ():
                try:
                    found[name] = measured()
                except Exception as error:  # a state of the package that has no such call
                    if os.environ.get("VERBOSE"):
                        print(f"{name}: {error!r:.300}", file=sys.stderr)
        print(json.dumps(found))


# ---- what is held ----------------------------------------------------------------------------------------------------

BARE = "bare: encode + hash + stat + write (us)"
BARE_LOADS = "bare: loads of each line of 20,000 (ms)"
START = "bare: python -c pass (ms of processor)"
CALLS = {
    "append_message: calls": ("append_message", 0, 16, 12),
    "append_message: modules": ("append_message", 1, 9, 7),
    "get_messages: calls": ("get_messages", 0, 18, 14),
    "update_metadata: calls": ("update_metadata", 0, 46, 42),
    "load: calls": ("load", 0, 165, 150),
    "append in a turn: calls": ("append in a turn", 0, 70, 50),
}
"""What is counted of which call, what it must be at most, and what would be better."""
RATIOS = {
    "append 1 KB : bare": ("append 1 KB, process-crash (us)", BARE, 2.2, None),
    "load 500 at a time : one by one": (
        "load 20,000, appended 500 at a time (ms)",
        "load 20,000, appended one by one (ms)",
        1.25,
        None,
    ),
    "get after load : bare loads": ("get_messages of 20,000 after load, one by one (ms)", BARE_LOADS, 0.9, None),
    "load + get, 500 at a time : bare loads": ("load + get 20,000, 500 at a time (ms)", BARE_LOADS, 1.55, None),
    "load + get of 10,000 : SQLite": (
        "load + get 10,000, reader (ms)",
        "SQLite: select + loads of 10,000 (ms)",
        1.65,
        1.5,
    ),
    "last 50, reader : SQLite": ("last 50 of 10,000, reader (us)", "SQLite: last 50 (us)", 1.3, 1.2),
    "last 50, writer : SQLite": ("last 50 of 10,000, writer (us)", "SQLite: last 50 (us)", 2.0, 1.8),
    "list : bare Python": ("command list (ms of processor)", START, 9.5, 8),
    "show : bare Python": ("command show (ms of processor)", START, 9.5, 8.5),
    "search : bare Python": ("command search (ms of processor)", START, 16, 14),
    "export : bare Python": ("command export (ms of processor)", START, 16, 14),
}
"""The same of a time beside another one of the same process. ``benchmarks.guard`` has `verify` and `list` beside the plain way."""


def print_targets(states, rounds, walk):
    print(f"{'ratio':44}" + "".join(f"{f'[{k}]':>9}" for k in range(len(states))) + f"{'must':>9}{'aim':>7}")

    def row(name, values, must, aim):
        shown = "".join(f"{'-' if value is None else format(value, '.2f').removesuffix('.00'):>9}" for value in values)
        met = values[-1] is not None and values[-1] <= must
        print(f"{name:44}{shown}{f'≤ {must}':>9}{aim or '':>7}{'' if met else '  MISSED'}")

    for name, (call, which, must, aim) in CALLS.items():
        row(name, [walk[state].get(call, [None] * 3)[which] for state in states], must, aim)
    for name, (ours, other, most, better) in RATIOS.items():
        values = []
        for state in states:
            found = [one[ours] / one[other] for one in rounds[state] if ours in one and other in one]
            values.append(statistics.median(found) if found else None)
        if any(value is not None for value in values):
            row(name, values, most, better)
    turn = "append 1 KB, process-crash, in turns (us)"
    beside = [
        [b[turn] / a[turn] for a, b in zip(rounds[states[0]], rounds[state], strict=True) if turn in a and turn in b]
        for state in states
    ]
    if all(beside):
        row("append in a turn : that of [0]", [*map(statistics.median, beside)], 1, 0.9)


# ---- the rounds ------------------------------------------------------------------------------------------------------


def main():
    given = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    given.add_argument("checkouts", nargs="*")
    given.add_argument("--rounds", type=int, default=7)
    given.add_argument("--only", default="", metavar="GROUP,…", help="append, meta, load, ten, last, start")
    given.add_argument("--dir", help="where the files are written (default: the temporary directory)")
    given.add_argument("--json", metavar="FILE")
    given.add_argument("--targets", action="store_true", help="print the ratios that have bounds, and nothing else")
    given.add_argument("--worker", nargs=2, help=argparse.SUPPRESS)
    args = given.parse_args()
    if args.worker:
        what, where = args.worker
        worker(what, where, [*filter(None, args.only.split(","))])
        return
    states = [*map(os.path.realpath, args.checkouts)]
    place = tempfile.mkdtemp(dir=args.dir)

    def run(state, what):
        environment = {**os.environ, "PYTHONPATH": state, "XDG_CACHE_HOME": f"{folders[state]}/cache"}
        command = [sys.executable, os.path.abspath(__file__), "--worker", what, folders[state], "--only", args.only]
        done = subprocess.run(command, stdout=subprocess.PIPE, check=True, env=environment, cwd=place)
        return json.loads(done.stdout) if done.stdout else None

    try:
        folders = {state: f"{place}/{k}" for k, state in enumerate(states)}
        compiling = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        for state, folder in folders.items():
            os.mkdir(folder)
            compile_all = [sys.executable, "-m", "compileall", "-q", f"{state}/transcript_store"]
            subprocess.run(compile_all, check=True, env=compiling)
            run(state, "build")
        rounds: dict[str, list[dict[str, float]]] = {state: [] for state in states}
        for k in range(args.rounds):
            for state in states if k % 2 == 0 else states[::-1]:
                rounds[state].append(run(state, "measure"))
        walk = {state: run(state, "walk") for state in states}
    finally:
        shutil.rmtree(place)
    for k, state in enumerate(states):
        print(f"[{k}] {state}")
    if args.json:
        with open(args.json, "w") as file:
            json.dump({"states": states, "rounds": rounds, "walks": walk}, file, indent=1)
    if args.targets:
        print_targets(states, rounds, walk)
        return
    print(f"{'':56}" + "".join(f"{f'[{k}]':>10}" for k in range(len(states))) + "   each / [0]")
    for what in rounds[states[-1]][0]:
        row, ratios = [], []
        for state in states:
            values = [one[what] for one in rounds[state] if what in one]
            row.append(statistics.median(values) if values else None)
            beside = [
                b[what] / a[what]
                for a, b in zip(rounds[states[0]], rounds[state], strict=True)
                if what in a and what in b
            ]
            ratios.append(statistics.median(beside) if beside else None)
        shown = "".join(f"{'-' if value is None else format(value, '.2f'):>10}" for value in row)
        print(f"{what:56}{shown}   " + " ".join("-" if r is None else format(r, ".2f") for r in ratios[1:]))
    for what in walk[states[-1]]:
        counts = ("/".join(map(str, walk[state].get(what, ["-"]))) for state in states)
        print(f"{what + ': calls / modules / changes of module':56}" + "".join(f"{one:>12}" for one in counts))


if __name__ == "__main__":
    main()
