"""Verbs and flags of kubectl, through a front without Temporal."""

import json
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
import pytest_asyncio
import yaml

from client.failures import ExitCode
from tests.front.command_line import CommandLine, Shown
from tests.front.fleet_of_tenants import START, TOKENS, Fleet, a_fleet
from tests.workflows.environment.harness import a_deployment

Run = Callable[..., Awaitable[Shown]]
MINE = ("ModelDeployment", "a", "mine")


@pytest_asyncio.fixture
async def fleet(tmp_path: Path) -> AsyncIterator[Fleet]:
    """A front with the objects of two tenants."""
    async with a_fleet(tmp_path) as fleet:
        yield fleet


@pytest.fixture
def run(fleet: Fleet, line: Callable[[str], CommandLine]) -> Run:
    """Run a command as the administrator."""
    commands = line(str(fleet.client.make_url("")))

    async def running(*words: str) -> Shown:
        return await commands.run(*words, token=TOKENS["root"])

    return running


async def test_get_prints_what_a_template_or_columns_select(run: Run) -> None:
    template = "jsonpath={range .items[*]}{.metadata.name}{'\\n'}{end}"
    shown = await run("get", "md", "-A", "-o", template)
    assert shown.out.split() == ["mine", "other"]
    shown = await run("get", "md/mine", "-n", "a", "-o", "jsonpath={.metadata.name}")
    assert shown.out == "mine"
    columns = "custom-columns=NAME:.metadata.name,NS:.metadata.namespace,X:.spec.none"
    shown = await run("get", "md", "-A", "-o", columns)
    assert [row.split() for row in shown.out.splitlines()] == [
        ["NAME", "NS", "X"],
        ["mine", "a", "<none>"],
        ["other", "b", "<none>"],
    ]


async def test_get_sorts_selects_fields_and_leaves_titles_out(run: Run) -> None:
    columns = ("-o", "custom-columns=NAME:.metadata.name", "--no-headers")
    shown = await run("get", "md", "-A", *columns, "--sort-by", "{.metadata.namespace}")
    assert shown.out.split() == ["mine", "other"]
    shown = await run(
        "get", "md", "-A", *columns, "--field-selector", "metadata.name!=mine"
    )
    assert shown.out.split() == ["other"]
    shown = await run("get", "md", "-n", "a", "--no-headers")
    assert shown.out.split()[0] == "mine"
    shown = await run("get", "md", "-A", "--field-selector", "status.phase=Ready")
    assert (shown.code, "metadata.name=NAME" in shown.err) == (ExitCode.REFUSED, True)


@pytest.mark.parametrize("output", ["json", "yaml"])
async def test_programs_get_a_list_of_no_objects(run: Run, output: str) -> None:
    shown = await run("get", "md", "-n", "nobody", "-o", output)
    assert (shown.code, shown.err) == (ExitCode.DONE, "")
    found = yaml.safe_load(shown.out)
    assert (found["kind"], found["items"]) == ("List", [])
    shown = await run("get", "md", "-n", "nobody")
    assert (shown.out, "No resources found" in shown.err) == ("", True)


@pytest.mark.parametrize(
    ("words", "deleted"),
    [
        (["--all"], ["mine"]),
        (["--field-selector", "metadata.name=mine"], ["mine"]),
        (["--field-selector", "metadata.name!=mine"], []),
        (["-l", "app=none"], []),
    ],
)
async def test_delete_takes_all_or_the_selected_objects_of_a_namespace(
    run: Run, fleet: Fleet, words: list[str], deleted: list[str]
) -> None:
    shown = await run("delete", "md", "-n", "a", *words)
    assert shown.code == ExitCode.DONE, shown
    marked = [
        name
        for (_, _, name), tree in fleet.plane.trees.items()
        if "deletionTimestamp" in tree["metadata"]
    ]
    assert marked == deleted
    assert ("No resources found" in shown.err) is not bool(deleted)


@pytest.mark.parametrize(
    "words",
    [
        ["get", "md/mime"],
        ["describe", "md/mime"],
        ["label", "md/mime", "a=b"],
        ["set", "image", "md/mime", "engine=a:1"],
    ],
    ids=lambda words: words[0],
)
async def test_an_error_about_a_name_names_the_nearest_one(
    run: Run, words: list[str]
) -> None:
    shown = await run(*words, "-n", "a")
    assert shown.code == ExitCode.NOT_FOUND
    assert "  did you mean mine?" in shown.err.splitlines()
    shown = await run("get", "md/entirely-different", "-n", "a")
    assert (shown.code, "did you mean" in shown.err) == (ExitCode.NOT_FOUND, False)


@pytest.mark.parametrize("output", ["go-template={{.}}", "xml", "custom-columns=A"])
async def test_an_unknown_output_is_refused_with_the_known_ones(
    run: Run, output: str
) -> None:
    shown = await run("get", "md", "-o", output)
    assert (shown.code, "next: " in shown.err) == (ExitCode.REFUSED, True)


async def test_labels_and_annotations_are_set_replaced_and_removed(
    run: Run, fleet: Fleet
) -> None:
    shown = await run("label", "md/mine", "-n", "a", "tier=gold", "old=1")
    assert shown.out == "modeldeployment/mine labeled\n"
    shown = await run("label", "md/mine", "-n", "a", "tier=silver")
    assert (shown.code, "--overwrite" in shown.err) == (ExitCode.REFUSED, True)
    await run("label", "md/mine", "-n", "a", "tier=silver", "old-", "--overwrite")
    assert fleet.plane.trees[MINE]["metadata"]["labels"] == {"tier": "silver"}
    await run("annotate", "md/mine", "-n", "a", "owner=ann")
    assert fleet.plane.trees[MINE]["metadata"]["annotations"]["owner"] == "ann"
    shown = await run("annotate", "md/mine", "-n", "a", "owner=ann")
    assert shown.out == "modeldeployment/mine not changed\n"


async def test_a_patch_changes_fields_and_is_checked_before_it_is_sent(
    run: Run, fleet: Fleet
) -> None:
    shown = await run("patch", "md/mine", "-n", "a", "-p", '{"spec": {"replicas": 7}}')
    assert (shown.code, fleet.plane.trees[MINE]["spec"]["replicas"]) == (0, 7)
    for patch, why in (
        ('{"spec": {"replicas": -1}}', "replicas"),
        ('{"metadata": {"name": "other"}}', "metadata.name cannot be changed"),
        ("[1]", "must hold a mapping"),
    ):
        shown = await run("patch", "md/mine", "-n", "a", "-p", patch)
        assert (shown.code, why in shown.err) == (ExitCode.REFUSED, True), shown
    assert fleet.plane.trees[MINE]["spec"]["replicas"] == 7


def an_editor(folder: Path, *texts: str) -> str:
    """Return the command of an editor that replaces by a text at each start.

    A text is OLD=NEW, and the last one is repeated.
    """
    program = folder / "editor.py"
    program.write_text(
        f"""
import pathlib, sys
texts, starts = {list(texts)!r}, pathlib.Path({str(folder / "starts")!r})
number = len(starts.read_text()) if starts.exists() else 0
starts.write_text("x" * (number + 1))
file = pathlib.Path(sys.argv[1])
pathlib.Path({str(folder)!r}, f"seen-{{number}}").write_text(file.read_text())
file.write_text(file.read_text().replace(*texts[min(number, len(texts) - 1)].split("=")))
"""
    )
    return f"{sys.executable} {program}"


async def test_edit_sends_the_changed_fields(
    run: Run, fleet: Fleet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replicas = fleet.plane.trees[MINE]["spec"]["replicas"]
    changed = f"replicas: {replicas}=replicas: 9"
    monkeypatch.setenv("KUBE_EDITOR", an_editor(tmp_path, changed))
    shown = await run("edit", "md/mine", "-n", "a")
    assert (shown.code, shown.out) == (0, "modeldeployment/mine edited\n")
    assert fleet.plane.trees[MINE]["spec"]["replicas"] == 9
    shown = await run("edit", "md/mine", "-n", "a")
    assert (shown.code, shown.out) == (0, "modeldeployment/mine not changed\n")


async def test_edit_opens_a_refused_manifest_again_with_the_reasons(
    run: Run, fleet: Fleet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replicas = fleet.plane.trees[MINE]["spec"]["replicas"]
    steps = [f"replicas: {replicas}=replicas: -1", "replicas: -1=replicas: 8"]
    monkeypatch.setenv("KUBE_EDITOR", an_editor(tmp_path, *steps))
    shown = await run("edit", "md/mine", "-n", "a")
    assert shown.out == "modeldeployment/mine edited\n"
    assert fleet.plane.trees[MINE]["spec"]["replicas"] == 8
    again = (tmp_path / "seen-1").read_text().splitlines()
    assert again[0].startswith("# ModelDeployment a/mine cannot be changed")
    assert "replicas" in again[1]
    monkeypatch.setenv("KUBE_EDITOR", an_editor(tmp_path, "replicas: 8=replicas: -1"))
    shown = await run("edit", "md/mine", "-n", "a")
    assert (shown.code, "cannot be changed" in shown.err) == (ExitCode.REFUSED, True)


@pytest.mark.parametrize("editor", ["/no/such/editor", "false", "'"])
async def test_an_editor_that_fails_changes_nothing(
    run: Run, fleet: Fleet, monkeypatch: pytest.MonkeyPatch, editor: str
) -> None:
    before = dict(fleet.plane.trees)
    monkeypatch.setenv("KUBE_EDITOR", editor)
    shown = await run("edit", "md/mine", "-n", "a")
    assert (shown.code, "set KUBE_EDITOR" in shown.err) == (ExitCode.REFUSED, True)
    assert fleet.plane.trees == before


async def test_set_image_changes_the_named_containers(run: Run, fleet: Fleet) -> None:
    def images() -> list[str]:
        engines = fleet.plane.trees[MINE]["spec"]["template"]["spec"]["engines"]
        pods = [member["template"]["spec"] for member in engines[0]["members"]]
        return [pod["containers"][0]["image"] for pod in pods]

    for name, wanted in (("engine", "a:1"), ("*", "a:2"), ("main/engine", "a:3")):
        shown = await run("set", "image", "md/mine", "-n", "a", f"{name}={wanted}")
        assert shown.out == "modeldeployment/mine image updated\n", shown
        assert set(images()) == {wanted}
    for words, why in (
        (["md/mine", "engin=a:4"], "did you mean engine?"),
        (["md/mine", "other/engine=a:4"], "has no container"),
        (["md/mine", "engine="], "an image is empty"),
        (["md/mine"], "no image to set"),
        (["ic/mine", "engine=a:4"], "has no images"),
    ):
        shown = await run("set", "image", *words, "-n", "a")
        assert (shown.code, why in shown.err) == (ExitCode.REFUSED, True), shown
    assert set(images()) == {"a:3"}


async def test_diff_shows_changed_lines_and_its_exit_code_says_whether_there_are_any(
    run: Run, tmp_path: Path, fleet: Fleet
) -> None:
    file = tmp_path / "mine.json"
    replicas = fleet.plane.trees[MINE]["spec"]["replicas"]
    changed = json.loads(json.dumps(fleet.plane.trees[MINE]))
    del changed["status"]
    file.write_text(json.dumps(changed))
    shown = await run("diff", "-f", str(file))
    assert shown.out == ""
    assert shown.code == ExitCode.DONE
    changed["spec"]["replicas"] = replicas + 1
    file.write_text(json.dumps(changed))
    shown = await run("diff", "-f", str(file))
    assert shown.code == ExitCode.FAILED
    assert f"-  replicas: {replicas}" in shown.out.splitlines()
    assert f"+  replicas: {replicas + 1}" in shown.out.splitlines()
    file.write_text(json.dumps(a_deployment("new", "a")))
    shown = await run("diff", "-f", str(file))
    assert "--- present/modeldeployment/new" in shown.out


async def test_wait_ends_with_the_condition_or_says_what_is_missing(
    run: Run, fleet: Fleet
) -> None:
    ready = {
        "type": "Ready",
        "status": "False",
        "reason": "Creating",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
        "observedGeneration": 1,
    }
    fleet.plane.trees[MINE]["status"] = {"conditions": [ready]}
    for goal in ("create", "condition=Ready=False", "jsonpath={.metadata.name}=mine"):
        shown = await run("wait", "md/mine", "-n", "a", f"--for={goal}", "--timeout=5s")
        assert shown.out == "modeldeployment/mine condition met\n", (goal, shown)
    shown = await run("wait", "md/none", "-n", "a", "--for=delete")
    assert shown.out == "modeldeployment/none condition met\n"
    shown = await run("wait", "md", "-n", "a", "--all", "--for=create")
    assert shown.out == "modeldeployment/mine condition met\n"
    shown = await run(
        "wait", "md/none", "-n", "a", "--for=condition=Ready", "--timeout=0s"
    )
    assert (shown.code, "it does not exist" in shown.err) == (ExitCode.TIMED_OUT, True)
    for words in (["md/mine", "--for=x"], ["md", "--for=create"]):
        shown = await run("wait", *words)
        assert (shown.code, "next: " in shown.err) == (ExitCode.REFUSED, True)


async def test_version_and_status_need_no_temporal(run: Run, fleet: Fleet) -> None:
    shown = await run("version")
    parts = [line.split()[0] for line in shown.out.splitlines()[1:]]
    assert parts == ["client", "front"]
    for key in list(fleet.projection.all_keys()):
        # The other objects of this fleet have specs that no front would show.
        if key.kind != MINE[0]:
            fleet.projection.remove(key, START + 10)
    shown = await run("status", "-n", "a")
    assert shown.out.splitlines()[1].split() == ["ModelDeployment", "1", "0", "1", "0"]
    assert "Capacity" not in shown.out
