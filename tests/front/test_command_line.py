"""`modelplane --server`: commands through the front with real Temporal, workers and
TLS.
"""

import asyncio
import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from client.failures import ExitCode
from client.output.printer import ResourcePrinter
from testbed.cluster.pki import Authority
from tests.front.command_line import OF_FRONT, CommandLine, Shown
from tests.front.front_under_test import TOKENS, FrontUnderTest
from tests.workflows.environment.harness import a_deployment, eventually

pytestmark = [pytest.mark.testbed("shared"), pytest.mark.timeout(900)]

TEAM = "team-a"
DOCUMENT = Path(__file__).parents[2] / "docs" / "how-to" / "front.md"
WAIT = ("--wait", "--timeout", "120")


class Commands:
    """The CLI connected to the front of the session."""

    def __init__(self, line: CommandLine, folder: Path) -> None:
        self.line, self.folder = line, folder

    async def run(
        self, *words: str, user: str = "alice", code: int = ExitCode.DONE
    ) -> Shown:
        """Run a command that exits with this code; return its output."""
        shown = await self.line.run(*words, token=TOKENS.get(user, user))
        assert shown.code == code, shown
        return shown

    def file(self, name: str, namespace: str = TEAM, **more: Any) -> str:
        """Write a deployment to a file."""
        file = self.folder / f"{name}.json"
        file.write_text(json.dumps(a_deployment(name, namespace, **more)))
        return str(file)


@pytest_asyncio.fixture
async def commands(
    front: FrontUnderTest,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> AsyncIterator[Commands]:
    """Commands of alice, who has all rights in one namespace and none elsewhere."""
    ca = Authority(front.folder / "pki").ca
    yield Commands(
        CommandLine(capsys, monkeypatch, tmp_path / "home", front.url, ca), tmp_path
    )


async def test_a_deployment_is_applied_followed_changed_and_deleted_without_temporal(
    front: FrontUnderTest, commands: Commands
) -> None:
    run, file = commands.run, commands.file("cli")
    assert (
        await run("apply", "-f", file, "--dry-run=server")
    ).out == "modeldeployment/cli created (dry run)\n"
    assert (await run("get", "md/cli", "-n", TEAM, code=ExitCode.NOT_FOUND)).out == ""
    applied = await run("apply", "-f", file, *WAIT)
    assert applied.out.splitlines()[0] == "modeldeployment/cli created"
    assert (await run("apply", "-f", file)).out == "modeldeployment/cli unchanged\n"
    assert (
        await run("apply", "-f", file, "--dry-run=server")
    ).out == "modeldeployment/cli unchanged (dry run)\n"
    commands.file("cli", replicas=2)
    assert (
        await run("apply", "-f", file, "--dry-run=server")
    ).out == "modeldeployment/cli configured (dry run)\n"
    assert (await run("apply", "-f", file, *WAIT)).out.splitlines()[
        0
    ] == "modeldeployment/cli configured"
    assert (
        await run("scale", "md/cli", "-n", TEAM, "--replicas", "3", *WAIT)
    ).out.splitlines()[0] == "modeldeployment/cli scaled to 3"
    kept = await front.plane.describe("ModelDeployment", "cli", TEAM)
    assert (kept["spec"]["replicas"], kept["status"]["lastScale"]["by"]) == (3, "alice")

    table = (await run("get", "md", "-n", TEAM, "-o", "wide")).out.splitlines()
    assert (table[0].split()[:2], [row.split()[0] for row in table[1:]]) == (
        ["NAME", "REPLICAS"],
        ["cli"],
    )
    tree = json.loads((await run("get", "md/cli", "-n", TEAM, "-o", "json")).out)
    assert (tree["metadata"]["name"], "appliedRequestIds" in tree) == ("cli", False)
    described = (await run("describe", "md/cli", "-n", TEAM)).out
    assert described.count("cli-") >= 3, "its replicas are listed"
    assert "Temporal:" not in described
    assert "SpecChanged" in (await run("events", "md/cli", "-n", TEAM)).out

    assert (
        await run("rollout", "pause", "md/cli", "-n", TEAM)
    ).out == "modeldeployment/cli paused\n"
    assert (
        await run("rollout", "pause", "md/cli", "-n", TEAM)
    ).out == "modeldeployment/cli is paused already\n"
    kept = await front.plane.describe("ModelDeployment", "cli", TEAM)
    assert (kept["spec"]["rollout"]["paused"], kept["spec"]["replicas"]) == (True, 3)
    assert (
        await run("rollout", "resume", "md/cli", "-n", TEAM)
    ).out == "modeldeployment/cli resumed\n"
    assert (
        "rolled out"
        in (
            await run("rollout", "status", "md/cli", "-n", TEAM, "--timeout", "120")
        ).out
    )

    deleted = await run("delete", "md/cli", "-n", TEAM, *WAIT)
    assert deleted.out.splitlines()[0] == "modeldeployment/cli deletion requested"
    assert await front.plane.describe("ModelDeployment", "cli", TEAM) == {}
    assert (
        "does not exist"
        in (await run("delete", "md/cli", "-n", TEAM, code=ExitCode.NOT_FOUND)).err
    )
    assert (await run("delete", "md/cli", "-n", TEAM, "--ignore-not-found")).out == ""


async def test_the_options_do_what_the_variables_do_and_a_certificate_is_enough(
    front: FrontUnderTest, commands: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    pki = Authority(front.folder / "pki")
    mine = pki.pair("admin")
    monkeypatch.setenv("MODELPLANE_SERVER", "https://127.0.0.1:1")
    monkeypatch.setenv("MODELPLANE_CA_FILE", "/nowhere")
    trust = ("--server", front.url, "--ca-file", str(pki.ca))
    certified = (
        *trust,
        "--client-cert",
        str(mine.certificate),
        "--client-key",
        str(mine.key),
    )
    assert (
        await commands.line.run(*certified, "get", "md", "-n", "team-m")
    ).code == ExitCode.DONE
    assert (
        await commands.line.run(*certified, "get", "md", "-n", TEAM)
    ).code == ExitCode.REFUSED
    monkeypatch.delenv("MODELPLANE_CLIENT_CERT")
    monkeypatch.delenv("MODELPLANE_CLIENT_KEY")
    file = commands.folder / "token"
    file.write_text(TOKENS["alice"] + "\n")
    assert (
        await commands.line.run(
            *trust,
            "--token-file",
            str(file),
            "get",
            "md",
            "-n",
            TEAM,
            token="none",  # noqa: S106
        )
    ).code == ExitCode.DONE


async def test_a_user_of_one_namespace_cannot_read_or_change_another(
    front: FrontUnderTest, commands: Commands
) -> None:
    await front.plane.apply(a_deployment("theirs", "team-b", replicas=0))
    before = await front.plane.until("ModelDeployment", "theirs", bool, "team-b")
    asked = [
        ("get", "md"),
        ("get", "md/theirs"),
        ("get", "md/none"),
        ("describe", "md/theirs"),
        ("events", "md/theirs"),
        ("scale", "md/theirs", "--replicas", "7"),
        ("rollout", "pause", "md/theirs"),
        ("delete", "md/theirs"),
        ("get", "md", "-A"),
    ]
    for words in asked:
        scope = () if "-A" in words else ("-n", "team-b")
        shown = await commands.run(*words, *scope, code=ExitCode.REFUSED)
        assert (shown.out, "cannot" in shown.err) == ("", True), words
    shown = await commands.run(
        "apply",
        "-f",
        commands.file("theirs", "team-b", replicas=9),
        code=ExitCode.REFUSED,
    )
    assert "you may not do this with ModelDeployment team-b/theirs" in shown.err
    after = await front.plane.describe("ModelDeployment", "theirs", "team-b")
    for tree in (before, after):
        # The version also counts changes by the workflow itself.
        del tree["metadata"]["resourceVersion"]
    assert (after["spec"], after["metadata"]) == (before["spec"], before["metadata"])
    # The readable kinds are shown, and the others are named.
    everything = await commands.run("get", "all", "-n", TEAM)
    assert [
        line for line in everything.err.splitlines() if "inferenceclusters" in line
    ] == ["warning: you may not do this with inferenceclusters"]
    assert "theirs" in (await commands.run("get", "all", "-A", user="admin")).out
    # The message is the same whether or not the object exists.
    refused = [
        (
            await commands.run(
                "get", f"md/{name}", "-n", "team-b", code=ExitCode.REFUSED
            )
        ).err
        for name in ("theirs", "none")
    ]
    assert refused[0].replace("theirs", "none") == refused[1]


async def test_errors_about_token_or_authority_do_not_contain_the_token(
    commands: Commands,
) -> None:
    unknown = await commands.run(
        "get",
        "md",
        "-n",
        TEAM,
        user="nobody-knows-this-token",
        code=ExitCode.UNREACHABLE,
    )
    assert "does not know you" in unknown.err
    assert "nobody-knows" not in unknown.err
    wrong = await commands.line.run(
        "get", "md", change=lambda patch: patch.delenv("MODELPLANE_CA_FILE")
    )
    assert (wrong.code, "is not trusted" in wrong.err, "--ca-file" in wrong.err) == (
        ExitCode.UNREACHABLE,
        True,
        True,
    )


async def test_the_commands_of_the_documentation_work_in_their_order(
    front: FrontUnderTest, commands: Commands
) -> None:
    section = (
        DOCUMENT.read_text()
        .partition("## `modelplane` through the front")[2]
        .partition("\n## ")[0]
    )
    shown = [
        line.split()[1:]
        for line in section.splitlines()
        if line.startswith("modelplane ")
    ]
    assert len(shown) == 7
    file = commands.file("qwen")
    for words in shown:
        await commands.run(
            *(
                {"deployment.yaml": file, "ml-team": TEAM}.get(word, word)
                for word in words
            )
        )
    assert await front.plane.describe("ModelDeployment", "qwen", TEAM) == {}
    listed = set(re.findall(r"`(MODELPLANE_[A-Z_]+)`", section))
    assert listed == set(OF_FRONT)


async def test_a_watch_shows_changes(front: FrontUnderTest, commands: Commands) -> None:
    await commands.run("apply", "-f", commands.file("seen"), *WAIT)
    with pytest.MonkeyPatch.context() as patch:
        shown = asyncio.create_task(_watched(commands, patch))
        await eventually(lambda: _scaled(front), bool, what="a scale")
        text = await shown
    assert text.count("seen") >= 2
    await commands.run("delete", "md/seen", "-n", TEAM, *WAIT)


async def _scaled(front: FrontUnderTest) -> bool:
    path = f"/apis/modelplane.ai/v1alpha1/namespaces/{TEAM}/modeldeployments/seen/scale"
    status, _ = await front.ask(
        "PATCH",
        path,
        {"spec": {"replicas": 2}},
        **{"Content-Type": "application/merge-patch+json"},
    )
    return status == 200


async def _watched(commands: Commands, patch: pytest.MonkeyPatch) -> str:
    changes = 0
    printed = ResourcePrinter.print_changes

    def counted(self: Any, found: Any) -> None:
        nonlocal changes
        printed(self, found)
        changes += 1
        if any(one.tree["spec"]["replicas"] == 2 for one in found):
            raise KeyboardInterrupt

    patch.setattr(ResourcePrinter, "print_changes", counted)
    return (await commands.run("get", "md", "-n", TEAM, "-w", code=130)).out


async def test_a_chat_finds_its_service_through_the_front(
    front: FrontUnderTest, commands: Commands
) -> None:
    service = {
        "apiVersion": "modelplane.ai/v1alpha1",
        "kind": "ModelService",
        "metadata": {"name": "chat", "namespace": TEAM},
        "spec": {
            "endpoints": [
                {
                    "name": "main",
                    "weight": 3,
                    "selector": {"matchLabels": {"app": "chat"}},
                }
            ]
        },
    }
    file = commands.folder / "service.json"
    file.write_text(json.dumps(service))
    await commands.run("apply", "-f", str(file))
    shifted = await commands.run("service", "shift", "chat", "main=5", "-n", TEAM)
    assert shifted.out.splitlines()[0] == "modelservice/chat shifted"
    assert (await front.plane.describe("ModelService", "chat", TEAM))["spec"][
        "endpoints"
    ][0]["weight"] == 5
    shown = await commands.run(
        "chat", "chat", "hello", "-n", TEAM, code=ExitCode.FAILED
    )
    assert "ModelService team-a/chat has no address" in shown.err
    await commands.run("describe", "ms/chat", "-n", TEAM)
    await commands.run("delete", "ms/chat", "-n", TEAM, *WAIT)
