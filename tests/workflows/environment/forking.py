"""A process that has imported a program, such as the worker, starts nothing, and forks for each run of it.

Most of a worker's start is imports: seconds of processor time. The rest of the start, from settings to polling, is that of every worker,
and each is a process of its own that can be killed, stopped and left hanging. All of them hash strings with the seed of the one that
forks; the process of the tests, which replays their histories, has another.
"""

import atexit
import importlib
import json
import os
import runpy
import signal
import subprocess
import sys
import threading
import traceback
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NoReturn

from client.temporal.shutdown import exit_process

WORKER = "worker"


class Forks:
    """The process that forks, as the process of the tests sees it."""

    def __init__(self, imported: str = WORKER, environment: Mapping[str, str] | None = None) -> None:
        """Import a module there; `environment`: of its programs, in place of this process's."""
        command = [sys.executable, "-m", __name__, imported]
        pipe = subprocess.PIPE
        self._environment = environment
        self._process = subprocess.Popen(
            command,
            env=environment,
            stdin=pipe,
            stdout=pipe,
            text=True,
        )
        # Its answers carry no name.
        self._one_at_a_time = threading.Lock()
        atexit.register(self._end)

    def start(self, settings: dict[str, str], log: Path, module: str = WORKER, arguments: Sequence[str] = ()) -> int:
        """Start a program with settings in its environment; return its process id."""
        environment = {**(self._environment or os.environ), **settings}
        return int(self._ask({"environment": environment, "log": str(log), "module": module, "arguments": list(arguments)}))

    def exit_code(self, pid: int) -> int | None:
        """How a program ended, as `subprocess` says it; None while it runs. It is forgotten by that, so it must not be asked again."""
        code: int | None = self._ask({"ended": pid})
        return code

    def _ask(self, request: dict[str, Any]) -> Any:
        assert self._process.stdin
        assert self._process.stdout
        with self._one_at_a_time:
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
            return json.loads(self._process.stdout.readline())

    def _end(self) -> None:
        self._process.communicate()


@cache
def forks() -> Forks:
    """The one of this process, which runs until this process ends. Not to be called first by two threads at once."""
    return Forks()


def serve(imported: str) -> None:
    """Answer each line of standard input: with the process id of a program, or with how one ended."""
    importlib.import_module(imported)
    for line in sys.stdin:
        request = json.loads(line)
        answer = _exit_code(request["ended"]) if "ended" in request else _fork(request)
        print(json.dumps(answer), flush=True)  # noqa: T201 - the answer


def _exit_code(pid: int) -> int | None:
    ended, status = os.waitpid(pid, os.WNOHANG)
    return os.waitstatus_to_exitcode(status) if ended else None


def _fork(request: dict[str, Any]) -> int:
    pid = os.fork()
    if pid == 0:
        log = os.open(request["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.environ.clear()
        os.environ.update(request["environment"])
        sys.argv[1:] = request["arguments"]
        _run(request["module"])
    return pid


def _run(module: str) -> NoReturn:
    """Run a program in this process, and end it."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    code: Any = 1
    try:
        if module == WORKER:
            import worker  # noqa: PLC0415 - as above

            worker.main()
        else:
            runpy.run_module(module, run_name="__main__")
    except SystemExit as ended:
        code = ended.code
    except BaseException:  # noqa: BLE001 - as Python does with a process of its own
        traceback.print_exc()
    exit_process(code)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # it ends when the process of the tests does
    serve(sys.argv[1])
