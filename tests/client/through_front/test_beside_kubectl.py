"""kubectl and our client print the same for the same flags, at the same front."""

import asyncio
import shutil
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from testbed.cluster.pki import Authority
from tests.front.command_line import CommandLine
from tests.front.fleet_of_tenants import TOKENS, Fleet, a_fleet

NAMES = "jsonpath={range .items[*]}{.metadata.namespace}/{.metadata.name}{'\\n'}{end}"
COLUMNS = "custom-columns=NAME:.metadata.name,COUNT:.spec.replicas,NONE:.spec.none"
OF_MINE = ("modeldeployments/mine", "-n", "a")
ALL = ("get", "modeldeployments", "-A", "-o")
# Our names of objects have no group.
GROUP = ".modelplane.ai/"
UNCHANGED = "modeldeployment/mine not changed\n"
LINES = [
    [*ALL, NAMES],
    [*ALL, "jsonpath={.items[*].metadata.name}"],
    ["get", *OF_MINE, "-o", "jsonpath={.spec.replicas}"],
    ["get", *OF_MINE, "-o", "jsonpath={.spec.none}"],
    ["get", *OF_MINE, "-o", "name"],
    [*ALL, COLUMNS],
    [*ALL, "custom-columns=NAME:.metadata.name", "--no-headers"],
    [*ALL, COLUMNS, "--sort-by", ".metadata.name"],
    [*ALL, COLUMNS, "--sort-by", "{.metadata.namespace}"],
    [*ALL, COLUMNS, "--field-selector", "metadata.name=other"],
    [*ALL, COLUMNS, "--field-selector", "metadata.namespace!=a"],
    [*ALL, COLUMNS, "-l", "app!=none"],
    ["wait", *OF_MINE, "--for=create", "--timeout=5s"],
    ["wait", *OF_MINE, "--for=jsonpath={.metadata.name}=mine", "--timeout=5s"],
]
CHANGES = [
    ["label", *OF_MINE, "zone=one"],
    ["annotate", *OF_MINE, "owner=ann"],
    ["patch", *OF_MINE, "--type=merge", "-p", '{"spec":{"replicas":3}}'],
]


class BothPrograms:
    """Runs a command line with each program, as the administrator."""

    def __init__(self, fleet: Fleet, ours: CommandLine, url: str, ca: Path) -> None:
        self.fleet, self._ours = fleet, ours
        self._kubectl = ["--server", url, "--certificate-authority", str(ca)]

    async def kubectl(self, *words: str) -> str:
        program = shutil.which("kubectl")
        assert program, "this test needs kubectl on the PATH"
        process = await asyncio.create_subprocess_exec(
            *(program, *self._kubectl, "--token", TOKENS["root"], *words),
            stdout=asyncio.subprocess.PIPE,
            env={"HOME": str(self.fleet.folder), "KUBECONFIG": "/dev/null"},
        )
        out, _ = await process.communicate()
        assert process.returncode == 0
        return out.decode()

    async def ours(self, *words: str) -> str:
        shown = await self._ours.run(*words, token=TOKENS["root"])
        assert shown.code == 0, shown.err
        return shown.out


@pytest_asyncio.fixture
async def both(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> AsyncIterator[BothPrograms]:
    """Programs at a front with TLS: kubectl sends no token without it."""
    pki = Authority(tmp_path / "pki")
    pki.ensure()
    pair = pki.pair("apiserver")
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(pair.certificate, pair.key)
    async with a_fleet(tmp_path, tls=tls) as fleet:
        url = f"https://127.0.0.1:{fleet.client.port}"
        line = CommandLine(capsys, monkeypatch, tmp_path / "home", url, pki.ca)
        yield BothPrograms(fleet, line, url, pki.ca)


async def test_reading_prints_the_same(both: BothPrograms) -> None:
    for words in LINES:
        wanted = (await both.kubectl(*words)).replace(GROUP, "/")
        assert await both.ours(*words) == wanted, words


async def test_a_change_by_one_program_is_the_change_by_the_other(
    both: BothPrograms,
) -> None:
    """A repetition finds nothing to change."""
    for words in CHANGES:
        assert await both.ours(*words) != UNCHANGED
        await both.kubectl(*words)
        assert await both.ours(*words) == UNCHANGED
