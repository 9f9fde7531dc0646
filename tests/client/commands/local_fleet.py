"""`modelplane` and kubectl in separate processes, as users of a local fleet run them."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from api_types.environment import HOME_VARIABLE
from tests.environment.waiting import TIMEOUT_SECONDS

DEMO = Path(__file__).parents[3] / "examples" / "testbed" / "demo.yaml"


def modelplane(
    home: Path, *words: str, **more: str
) -> subprocess.CompletedProcess[str]:
    """Run the program in its own process. `more` are variables of its environment."""
    environment = {**os.environ, HOME_VARIABLE: str(home), **more}
    return _run([sys.executable, "-m", "client.main", *words], environment)


def kubectl(kubeconfig: Path, *words: str) -> str:
    """Run the machine's kubectl with only a kubeconfig, and return its standard output."""
    program = shutil.which("kubectl")
    assert program, "kubectl is not on the PATH"
    ended = _run([program, "--kubeconfig", str(kubeconfig), *words], None)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def _run(
    command: list[str],
    environment: dict[str, str] | None,
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=TIMEOUT_SECONDS,
    )


def processes_of(home: Path) -> list[str]:
    """Return the command lines of all processes that name the home, without zombies."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                line = (entry / "cmdline").read_bytes()
            except (FileNotFoundError, ProcessLookupError):
                continue  # the process has ended
            words = line.replace(b"\0", b" ").decode(errors="replace")
            if str(home) in words:
                found.append(words)
    return found
