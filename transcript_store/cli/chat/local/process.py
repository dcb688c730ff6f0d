"""The process that serves the model; started by ``server`` as a script, it imports nothing of this package.

It is told what to do in one line of JSON on its standard input, says in one line on its standard output where it listens, and
ends when its standard input does: the other end of that pipe closes with the process that holds it, however that ends.
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
    os.dup2(2, 1)  # whatever llama.cpp prints goes to the log
    told = json.loads(sys.stdin.buffer.readline())
    threading.Thread(target=_end_with_the_parent, daemon=True).start()

    import xllamacpp

    parameters = xllamacpp.CommonParams()
    parameters.model.path = told["model"]
    parameters.model_alias = {told["name"]}
    parameters.hostnames, parameters.port = ["127.0.0.1"], 0
    parameters.api_keys = [told["token"]]  # other users of this machine can reach the port too
    parameters.n_ctx, parameters.n_parallel = told["context_tokens"], 1
    parameters.chat_template = told["template"]
    parameters.sampling.temp = 0.0  # the likeliest token: the same question gets the same answer
    for name, value in told["sampling"].items():
        setattr(parameters.sampling, name, value)
    # Threads of llama.cpp wait for each other in a spin: on a busy machine more of them than free cores is far slower.
    threads = max(1, (os.cpu_count() or 1) // 2)
    for cpu in (parameters.cpuparams, parameters.cpuparams_batch):
        cpu.n_threads, cpu.poll = threads, 0
    parameters.fit_params = parameters.warmup = False  # it is small, and the first question warms it up
    parameters.cache_ram_mib = 0
    parameters.ui = parameters.endpoint_slots = False
    parameters.offline = True
    server = xllamacpp.Server(parameters)
    os.write(answer, f"{server.listening_address}\n".encode())
    os.close(answer)
    threading.Event().wait()


if __name__ == "__main__":
    main()
