"""The process that serves the model. ``server`` starts it as a script: it imports nothing of this package.

It reads its settings as one line of JSON from standard input, and prints the address at which it listens as one line on
standard output. It ends when its standard input ends: the system closes the other end of that pipe with the process that
holds it, also when that process is killed.
"""

from __future__ import annotations

import json
import os
import sys
import threading


def _end_with_the_parent() -> None:
    sys.stdin.buffer.read()
    os._exit(0)


def main() -> None:
    """Serve until standard input ends."""
    answer = os.dup(1)
    os.dup2(2, 1)  # llama.cpp prints on standard output too: that goes to the log, and not between us and the parent
    settings = json.loads(sys.stdin.buffer.readline())
    threading.Thread(target=_end_with_the_parent, daemon=True).start()

    import xllamacpp

    parameters = xllamacpp.CommonParams()
    parameters.model.path = settings["model"]
    parameters.model_alias = {settings["name"]}
    parameters.hostnames, parameters.port = ["127.0.0.1"], 0
    parameters.api_keys = [settings["token"]]  # other users of this machine can reach the port too
    parameters.n_ctx, parameters.n_parallel = settings["context_tokens"], 1
    parameters.chat_template = settings["template"]
    parameters.sampling.temp = 0.0  # always the likeliest token: the same question gets the same answer
    for name, value in settings["sampling"].items():
        setattr(parameters.sampling, name, value)
    # The threads of llama.cpp spin while they wait for each other. On a busy machine, more threads than free cores are far
    # slower than fewer.
    threads = max(1, (os.cpu_count() or 1) // 2)
    for cpu in (parameters.cpuparams, parameters.cpuparams_batch):
        cpu.n_threads, cpu.poll = threads, 0
    parameters.fit_params = parameters.warmup = False  # it is small: the first question warms it up
    parameters.cache_ram_mib = 0
    parameters.ui = parameters.endpoint_slots = False
    parameters.offline = True
    server = xllamacpp.Server(parameters)
    os.write(answer, f"{server.listening_address}\n".encode())
    os.close(answer)
    threading.Event().wait()


if __name__ == "__main__":
    main()
