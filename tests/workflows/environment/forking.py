"""A process that has imported a program, such as the worker, and forks for each run of it.

Most of a worker's startup time is imports, which take seconds of processor time. Each
forked worker still reads its settings, connects and polls as usual, and is a process
that can be killed, stopped and suspended. All forks share the string hash seed of the
forking process. The process of the tests, which replays their histories, has another
seed.
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

from fleet_client.temporal.shutdown import exit_process

WORKER = "worker"


class Forks:
    """A handle of the test process on the forking process."""

    def __init__(
        self, imported: str = WORKER, environment: Mapping[str, str] | None = None
    ) -> None:
        """Import a module in a new process.

        `environment` replaces this process's environment for its programs.
        """
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
        # Responses carry no request id.
        self._one_at_a_time = threading.Lock()
        atexit.register(self._end)

    def start(
        self,
        settings: dict[str, str],
        log: Path,
        module: str = WORKER,
        arguments: Sequence[str] = (),
    ) -> int:
        """Start a program with settings in its environment; return its process id."""
        environment = {**(self._environment or os.environ), **settings}
        return int(
            self._ask(
                {
                    "environment": environment,
                    "log": str(log),
                    "module": module,
                    "arguments": list(arguments),
                }
            )
        )

    def exit_code(self, pid: int) -> int | None:
        """Return the exit code as `subprocess` defines it, or None while the program runs.

        The code is returned once only.
        """
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
    """Return the forking process of this process, which runs until this process ends.

    The first call must not race with another thread.
    """
    return Forks()


def serve(imported: str) -> None:
    """Answer each line of standard input with the process id of a new program, or with
    the exit code of one.
    """
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
    """Run a program in this process and exit."""
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
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # it ends with the test process
    serve(sys.argv[1])
