"""Completion as users see it: keys typed in bash, zsh and fish, and the resulting line.

Debian's packages of zsh and fish are unpacked if the machine lacks these shells.
"""

import asyncio
import os
import pty
import select
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path

import pytest
import pytest_asyncio

from api_types import environment
from testbed.programs import debian
from testbed.programs.install import Installer
from tests.front.command_line import CommandLine
from tests.front.fleet_of_tenants import START, TOKENS, Fleet, a_fleet

KINDS = ("ModelDeployment", "InferenceCluster")
# The typed keys, and the whole line after TAB.
LINES = {
    "modelplane roll": "modelplane rollout",
    "modelplane get md --field-s": "modelplane get md --field-selector",
    "modelplane get modeld": "modelplane get modeldeployments",
    "modelplane get -n a md mi": "modelplane get -n a md mine",
    "modelplane describe -n b md/ot": "modelplane describe -n b md/other",
}
# The values that a word is completed to.
VALUES = {
    "rollout resta": ["restart"],
    "get inference": ["inferenceclasses", "inferenceclusters", "inferencegateways"],
    "get md": ["md/"],
    "get -n b md ": ["other"],
    "get -n b md other ": [],
    "get md -n ": ["a", "b"],
    "scale --namespace b md/": ["md/other"],
    "label -n a md/mine x=y md/": ["md/mine"],
    "drain ": ["mine", "other"],
    "plan --drain o": ["other"],
    "plan --delete-pool ": ["mine/p", "other/p"],
    "explain ic.spec.node": ["ic.spec.nodePools"],
    "explain md.spec.none.": [],
    "explain nonsense.": [],
    "get md --sort-by .metadata.crea": [".metadata.creationTimestamp"],
    "schema serving": ["servingstacks"],
    "get nonsense ": [],
}
# The shell computes the number, so the keys as typed do not look like the mark.
MARK, KEYS = "R42:", "echo R$((40+2)):"
LIMIT_SECONDS = 240.0


@pytest_asyncio.fixture
async def fleet(tmp_path: Path) -> AsyncIterator[Fleet]:
    """A front with deployments and clusters `mine` and `other`."""
    async with a_fleet(tmp_path) as fleet:
        for key in list(fleet.projection.all_keys()):
            if key.kind == "InferenceCluster":
                tree = fleet.plane.trees[key]
                tree["spec"] = {
                    "cluster": {
                        "source": "Existing",
                        "existing": {"secretRef": {"name": "x"}},
                    },
                    "nodePools": [{"name": "p", "className": "c", "nodeCount": 1}],
                }
                fleet.projection.put(key, tree)
            elif key.kind not in KINDS:
                fleet.projection.remove(key, START + 10)
        yield fleet


@pytest.fixture
def user(fleet: Fleet, tmp_path: Path) -> dict[str, str]:
    """The environment of a user of that front, with an empty home."""
    home = tmp_path / "home"
    home.mkdir()
    return {
        "HOME": str(home),
        "ZDOTDIR": str(home),
        "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin",
        "TERM": "xterm",
        "LC_ALL": "C.UTF-8",
        environment.HOME_VARIABLE: str(home / "fleet"),
        environment.SERVER_VARIABLE: str(fleet.client.make_url("")),
        environment.TOKEN_VARIABLE: TOKENS["root"],
    }


def typed(command: Sequence[str], env: Mapping[str, str]) -> list[str]:
    """Type all lines with TAB into a shell on a terminal; return the completed lines."""
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        command,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=env,
        start_new_session=True,
    ) as shell:
        os.close(theirs)
        try:
            return [completed(ours, line) for line in LINES]
        finally:
            shell.kill()
            os.close(ours)


def completed(terminal: int, line: str) -> str:
    """Type a line and TAB, then let the shell echo the line as it is."""
    os.write(terminal, f"{line}\t\x01{KEYS} \r".encode())
    seen, until = "", time.monotonic() + LIMIT_SECONDS
    while time.monotonic() < until:
        if select.select([terminal], [], [], 1.0)[0]:
            seen += os.read(terminal, 65536).decode(errors="replace")
        lines = seen.replace("\r", "\n").split("\n")
        for at, text in enumerate(lines[:-1]):
            if text.startswith(MARK):
                del lines[: at + 1]
                return text.removeprefix(MARK).strip()
    raise AssertionError(f"no answer to {line!r}: {seen!r}")


async def test_bash_completes(user: dict[str, str], tmp_path: Path) -> None:
    start = tmp_path / "bashrc"
    start.write_text('PS1="> "; eval "$(modelplane completion bash)"\n')
    command = ["bash", "--noprofile", "--rcfile", str(start), "-i"]
    assert await asyncio.to_thread(typed, command, user) == list(LINES.values())


async def test_zsh_completes(user: dict[str, str]) -> None:
    program = Installer(print).debian_program(debian.ZSH)
    unpacked = program.parents[1]
    modules = next(unpacked.glob("usr/lib/*/zsh/*"), None)
    home = Path(user["HOME"])
    if modules:
        # An unpacked zsh does not know where its modules and functions are.
        places = unpacked.glob("usr/share/zsh/functions/**/")
        functions = sorted(place for place in places if place.is_dir())
        (home / ".zshenv").write_text(
            f"module_path=({modules})\nfpath=({' '.join(map(str, functions))})\n"
        )
    (home / ".zshrc").write_text(
        "PS1='> '; unsetopt prompt_cr prompt_sp; bindkey -e\n"
        "autoload -Uz compinit && compinit -u\n"
        'eval "$(modelplane completion zsh)"\n'
    )
    command = [str(program), "-d", "-i"]
    assert await asyncio.to_thread(typed, command, user) == list(LINES.values())


async def test_fish_completes(user: dict[str, str], tmp_path: Path) -> None:
    program = Installer(print).debian_program(debian.FISH)
    script = tmp_path / "modelplane.fish"
    questions = "\n".join(f"complete -C '{line}'; echo ---" for line in LINES)
    script.write_text(f"modelplane completion fish | source\n{questions}\n")
    ended = await asyncio.to_thread(
        lambda: subprocess.run(
            [program, "--no-config", script],
            env=user,
            capture_output=True,
            text=True,
            timeout=LIMIT_SECONDS,
            check=True,
        )
    )
    answers = ended.stdout.split("---\n")[:-1]
    # Each answer is a word with its description.
    words = [
        " ".join((*line.split()[:-1], answer.split("\t")[0].strip()))
        for line, answer in zip(LINES, answers, strict=True)
    ]
    assert words == list(LINES.values()), ended.stderr


@pytest.mark.parametrize("words", VALUES)
async def test_a_word_is_completed_to_the_values_that_exist(
    fleet: Fleet, line: Callable[[str], CommandLine], words: str
) -> None:
    def at_tab(patch: pytest.MonkeyPatch) -> None:
        patch.setenv("_MODELPLANE_COMPLETE", "complete_bash")
        patch.setenv("COMP_WORDS", f"modelplane {words}")
        patch.setenv("COMP_CWORD", str(words.count(" ") + 1))

    url = str(fleet.client.make_url(""))
    shown = await line(url).run(token=TOKENS["root"], change=at_tab)
    assert (shown.out.split(), shown.err) == (VALUES[words], "")


async def test_a_fleet_that_does_not_answer_completes_nothing_and_says_nothing(
    line: Callable[[str], CommandLine],
) -> None:
    def at_tab(patch: pytest.MonkeyPatch) -> None:
        patch.setenv("_MODELPLANE_COMPLETE", "complete_bash")
        patch.setenv("COMP_WORDS", "modelplane get md/")
        patch.setenv("COMP_CWORD", "2")

    shown = await line("http://127.0.0.1:1").run(change=at_tab)
    assert (shown.out.strip(), shown.err) == ("", "")
