"""`apply --prune` and `apply -k`, through a front without Temporal."""

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from api_types.labels import APPLY_SET
from client.failures import ExitCode
from front.store.projection import ObjectKey
from tests.front.command_line import CommandLine, Shown
from tests.front.fleet_of_tenants import START, TOKENS, Fleet, a_fleet
from tests.workflows.environment.harness import a_deployment

Apply = Callable[..., Awaitable[Shown]]
KIND = "ModelDeployment"


@pytest_asyncio.fixture
async def fleet(tmp_path: Path) -> AsyncIterator[Fleet]:
    """A front with one deployment in each of two namespaces."""
    async with a_fleet(tmp_path) as fleet:
        for key in list(fleet.projection.all_keys()):
            if key.kind != KIND:
                fleet.projection.remove(key, START + 10)
        yield fleet


@pytest.fixture
def run(fleet: Fleet, line: Callable[[str], CommandLine]) -> Apply:
    """Run a command, as the administrator by default."""
    commands = line(str(fleet.client.make_url("")))

    async def running(*words: str, user: str = "root") -> Shown:
        return await commands.run(*words, token=TOKENS[user])

    return running


@pytest.fixture
def apply(run: Apply, tmp_path: Path) -> Apply:
    """Apply deployments of namespace a as a set."""

    async def applying(
        *names: str, apply_set: str = "chat", user: str = "root", more: str = ""
    ) -> Shown:
        file = tmp_path / "set.json"
        items = [a_deployment(name, "a") for name in names]
        file.write_text(
            json.dumps({"apiVersion": "v1", "kind": "List", "items": items})
        )
        options = ("--prune", "--applyset", apply_set, *filter(None, [more]))
        return await run("apply", "-f", str(file), *options, user=user)

    return applying


def deleting(fleet: Fleet) -> list[str]:
    """Return the names of the deployments that are being deleted."""
    return [
        name
        for (kind, _, name), tree in fleet.plane.trees.items()
        if kind == KIND and "deletionTimestamp" in tree["metadata"]
    ]


def show(fleet: Fleet) -> None:
    """Let the front see all deployments, as its feed does."""
    for (kind, namespace, name), tree in fleet.plane.trees.items():
        if kind == KIND:
            fleet.projection.put(ObjectKey(kind, namespace, name), tree)


@pytest.mark.parametrize("user", ["root", "ann"])
async def test_only_members_that_the_manifests_lack_are_deleted(
    fleet: Fleet, apply: Apply, user: str
) -> None:
    shown = await apply("one", "two", user=user)
    assert (shown.code, deleting(fleet)) == (ExitCode.DONE, [])
    show(fleet)
    shown = await apply("one", user=user, more="--dry-run=server")
    assert "modeldeployment/two pruned (dry run)" in shown.out.splitlines()
    assert deleting(fleet) == []
    shown = await apply("one", user=user)
    assert shown.out.splitlines()[-1] == "modeldeployment/two pruned"
    assert deleting(fleet) == ["two"]


async def test_another_set_and_a_copied_annotation_delete_nothing(
    fleet: Fleet, apply: Apply
) -> None:
    await apply("one", "two")
    await apply("three", apply_set="other")
    copied: dict[str, Any] = deepcopy(fleet.plane.trees[(KIND, "a", "one")])
    assert copied["metadata"]["annotations"][APPLY_SET].startswith("chat/")
    copied["metadata"] |= {"name": "copy", "uid": "copy"}
    fleet.plane.trees[(KIND, "a", "copy")] = copied
    mine = fleet.plane.trees[(KIND, "a", "mine")]["metadata"]
    mine["annotations"] = {APPLY_SET: "chat"}
    show(fleet)
    await apply("one", "two")
    assert deleting(fleet) == []


async def test_an_object_that_was_applied_without_the_set_leaves_it(
    fleet: Fleet, apply: Apply, run: Apply, tmp_path: Path
) -> None:
    await apply("one", "two")
    show(fleet)
    file = tmp_path / "two.json"
    file.write_text(json.dumps(a_deployment("two", "a")))
    await run("apply", "-f", str(file))
    show(fleet)
    await apply("one")
    assert deleting(fleet) == []


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--prune"], "--prune and --applyset go together"),
        (["--applyset", "x"], "--prune and --applyset go together"),
        (["--prune", "--applyset", "x y"], "is not a name"),
        (["--prune", "--applyset", "x", "--dry-run=client"], "reads none"),
    ],
)
async def test_a_set_without_a_rule_is_refused(
    fleet: Fleet, run: Apply, tmp_path: Path, words: list[str], why: str
) -> None:
    file = tmp_path / "one.json"
    file.write_text(json.dumps(a_deployment("one", "a")))
    shown = await run("apply", "-f", str(file), *words)
    assert (shown.code, why in shown.err) == (ExitCode.REFUSED, True), shown
    assert (KIND, "a", "one") not in fleet.plane.trees


async def test_a_dry_run_on_this_machine_asks_no_server(
    run: Apply, fleet: Fleet, tmp_path: Path
) -> None:
    file = tmp_path / "one.json"
    file.write_text(json.dumps(a_deployment("one", "a")))
    before = len(fleet.plane.touched)
    shown = await run("apply", "-f", str(file), "--dry-run=client")
    assert shown.out == "modeldeployment/one valid (client dry run)\n"
    assert len(fleet.plane.touched) == before


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only folder on PATH."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    return folder


def a_program(file: Path, script: str) -> None:
    file.write_text(f"#!/bin/sh\n{script}\n")
    file.chmod(0o700)


@pytest.mark.parametrize("command", ["kustomize build", "kubectl kustomize"])
async def test_a_kustomization_is_built_by_the_program_that_is_there(
    run: Apply, fleet: Fleet, tmp_path: Path, programs: Path, command: str
) -> None:
    name, words = command.split()
    folder = tmp_path / "overlay"
    folder.mkdir()
    manifest = json.dumps(a_deployment("built", "a"))
    a_program(
        programs / name,
        f"""[ "$1 $2" = "{words} {folder}" ] && echo '{manifest}' && exit
        echo "no kustomization.yaml in $2" >&2; exit 1""",
    )
    shown = await run("apply", "-k", str(folder))
    assert shown.out == "modeldeployment/built created\n", shown
    assert (KIND, "a", "built") in fleet.plane.trees
    shown = await run("apply", "-k", str(tmp_path))
    assert (shown.code, shown.out) == (ExitCode.FAILED, "")
    assert f"  no kustomization.yaml in {tmp_path}" in shown.err.splitlines()


@pytest.mark.usefixtures("programs")
async def test_without_kustomize_the_next_step_says_how_to_get_one(
    run: Apply, tmp_path: Path
) -> None:
    shown = await run("apply", "-k", str(tmp_path))
    assert (shown.code, "install kustomize" in shown.err) == (ExitCode.REFUSED, True)
    shown = await run("apply", "-k", str(tmp_path), "-f", "x.yaml")
    assert (shown.code, "exclude each other" in shown.err) == (ExitCode.REFUSED, True)
