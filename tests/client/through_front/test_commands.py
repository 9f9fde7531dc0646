"""Every command either works through the front, without any Temporal, or says that it
needs Temporal and sends nothing.
"""

import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
import pytest_asyncio

from api_types.resources.kinds import SERVED
from client.failures import ExitCode
from client.main import COMMANDS
from tests.client.through_front.answering import Said, always, answering
from tests.client.through_front.test_answers import service
from tests.front.command_line import CommandLine
from tests.front.fleet_of_tenants import TOKENS, Fleet, a_fleet
from tests.workflows.environment.harness import a_deployment

Line = Callable[[str], CommandLine]
# By command: words that need Temporal, and words that do not. FILE stands for a
# manifest, SECRET for the manifest of a Secret.
TEMPORAL: dict[str, list[str]] = {
    "apply": ["-f SECRET", "-f SECRET -f FILE", "-f SECRET --dry-run=server"],
    "delete": [
        "ic/mine --evict", "ic/mine --purge-crds", "md/mine -n a --force --reason x",
        "-f SECRET -f FILE", "ic/mine --evict --allow-loss",
    ],
    "explain": ["md/mine -n a"],
    "top": ["clusters", "pools", "namespaces -n a"],
    "decisions": ["md/mine -n a"],
    "replay-decision": ["7b0c7f6e-8f7e-4b0e-9f57-2f4f0b0c3a11.0.0"],
    "plan": ["-f FILE", "--drain mine"],
    "policy": ["get", "set -f POLICY"],
    "drain": ["mine", "mine --allow-loss"],
    "force-finalizer": ["ic/mine v1/a/b finalizer --reason x"],
    "undelete": ["md/mine -n a"],
    "workers": ["status", "promote a"],
    "up": [""],
    "down": [""],
    "clouds": [""],
    "logs": [""],
    "ui": ["", "md/mine -n a"],
}  # fmt: skip
THROUGH_FRONT: dict[str, list[str]] = {
    "version": ["", "--client"],
    "apply": ["-f FILE", "-f FILE --dry-run=server", "-f FILE --dry-run=client"],
    "get": ["md -n a", "md/mine -n a -o yaml", "md -n a -o json"],
    "wait": ["md/mine -n a --for=create"],
    "label": ["md/mine -n a tier=gold"],
    "annotate": ["md/mine -n a owner=ann"],
    "set": ["image md/mine -n a engine=example.com/vllm:2"],
    "patch": ['md/mine -n a -p {"spec":{"replicas":3}}'],
    "describe": ["md/mine -n a"],
    "events": ["md/mine -n a", "md -n a"],
    "scale": ["md/mine -n a --replicas 3"],
    "rollout": [
        "pause md/mine -n a",
        "resume md/mine -n a",
        "restart md/mine -n a",
        "undo md/mine -n a",
        "undo md/mine -n a --to-generation 1",
        "undo md/mine -n a --to-revision 1",
        "history md/mine -n a",
        "history md/mine -n a --revision 1",
    ],
    "retry": ["md/mine -n a"],
    "delete": ["md/mine -n a", "-f FILE"],
}
# These use no server, or need objects that this fleet lacks: test_like_kubectl.py and
# tests/front/test_command_line.py test them.
ELSEWHERE = {
    "status",
    "edit",
    "render",
    "validate",
    "schema",
    "completion",
    "api-resources",
    "service",
    "chat",
    "curl",
    "cordon",
    "uncordon",
    "diff",
    "doctor",
    "exec",  # tests/client/engines
    "port-forward",
}


@pytest_asyncio.fixture
async def fleet(tmp_path: Path) -> AsyncIterator[Fleet]:
    """A front with the objects of two tenants."""
    async with a_fleet(tmp_path) as fleet:
        yield fleet


@pytest.fixture
def words(tmp_path: Path) -> Callable[[str], list[str]]:
    """Replace the names of files by files."""
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "s", "namespace": "a"},
        "stringData": {"k": "v"},
    }
    files = {
        "FILE": a_deployment("mine", "a", replicas=4),
        "SECRET": secret,
        "POLICY": {},
        "OTHER": a_deployment("other", "b", replicas=4),
    }
    for name, tree in files.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(tree))
    return lambda text: [
        str(tmp_path / f"{word}.json") if word in files else word
        for word in text.split()
    ]


def test_every_command_is_listed_here() -> None:
    assert set(TEMPORAL) | set(THROUGH_FRONT) | ELSEWHERE == set(COMMANDS)


@pytest.mark.parametrize(
    "text",
    [f"{name} {more}".strip() for name, rows in TEMPORAL.items() for more in rows],
)
async def test_commands_that_need_temporal_say_so_and_send_nothing(
    fleet: Fleet,
    line: Line,
    words: Callable[[str], list[str]],
    tmp_path: Path,
    text: str,
) -> None:
    before = dict(fleet.plane.trees)
    shown = await line(str(fleet.client.make_url(""))).run(
        *words(text), token=TOKENS["root"]
    )
    assert (shown.code, shown.out) == (ExitCode.REFUSED, "")
    assert next(
        row for row in shown.err.splitlines() if row.startswith("error:")
    ).startswith("error: this command needs Temporal: ")
    assert shown.err.splitlines()[-1].startswith(
        "next: run it with access to Temporal, without --server"
    )
    assert (fleet.plane.trees, (tmp_path / "home" / "secrets").exists()) == (
        before,
        False,
    )


@pytest.mark.parametrize(
    "text",
    [f"{name} {more}".strip() for name, rows in THROUGH_FRONT.items() for more in rows],
)
async def test_commands_through_the_front_need_no_temporal(
    fleet: Fleet, line: Line, words: Callable[[str], list[str]], text: str
) -> None:
    shown = await line(str(fleet.client.make_url(""))).run(
        *words(text), token=TOKENS["ann"]
    )
    assert shown.code == ExitCode.DONE, shown
    assert shown.out or text.startswith("events")


async def test_a_retry_and_an_earlier_template_reach_the_object(
    fleet: Fleet, line: Line
) -> None:
    commands = line(str(fleet.client.make_url("")))
    shown = await commands.run("retry", "md/mine", "-n", "a", token=TOKENS["ann"])
    assert (shown.code, shown.out) == (
        ExitCode.DONE,
        "modeldeployment/mine retry requested\n",
    )
    assert [target.kind.short for target in fleet.plane.retried] == ["md"]
    shown = await commands.run(
        "rollout", "undo", "md/mine", "-n", "a", token=TOKENS["ann"]
    )
    assert (shown.code, shown.out) == (
        ExitCode.DONE,
        "modeldeployment/mine rolled back\n",
    )
    engines = fleet.plane.trees["ModelDeployment", "a", "mine"]["spec"]["template"][
        "spec"
    ]["engines"]
    assert [engine["copies"] for engine in engines] == [2]
    assert set(fleet.plane.by) == {"ann"}
    shown = await commands.run(
        "rollout",
        "undo",
        "md/mine",
        "-n",
        "a",
        "--to-generation",
        "9",
        token=TOKENS["ann"],
    )
    assert (shown.code, shown.err.splitlines()[-1]) == (
        ExitCode.REFUSED,
        "next: generations with a stored template: 1",
    )
    shown = await commands.run("retry", "md/none", "-n", "a", token=TOKENS["ann"])
    assert shown.code == ExitCode.NOT_FOUND


async def test_stacks_of_clusters_are_shown_to_whoever_may_see_them(
    fleet: Fleet, line: Line
) -> None:
    commands = line(str(fleet.client.make_url("")))
    shown = await commands.run("get", "ss", "-o", "name", token=TOKENS["root"])
    assert (shown.code, shown.out) == (
        ExitCode.DONE,
        "servingstack/mine\nservingstack/other\n",
    )
    shown = await commands.run("describe", "ss/mine", token=TOKENS["root"])
    assert (shown.code, shown.out.splitlines()[0].split()) == (
        ExitCode.DONE,
        ["Name:", "mine"],
    )
    assert (
        await commands.run("get", "ss/none", token=TOKENS["root"])
    ).code == ExitCode.NOT_FOUND
    assert (
        await commands.run("get", "ss", token=TOKENS["ann"])
    ).code == ExitCode.REFUSED


READS = [
    "get {short}",
    "get {short}/other",
    "describe {short}/other",
    "events {short}/other",
    "get {short} -A",
]
WRITES = [
    "apply -f OTHER",
    "apply -f OTHER --dry-run=server",
    "scale md/other --replicas 9",
    "delete md/other",
    "rollout restart md/other",
    "delete -f OTHER",
]


@pytest.mark.parametrize(
    "text",
    [*(row.format(short=info.short) for info in SERVED for row in READS), *WRITES],
)
async def test_the_objects_of_another_tenant_are_neither_shown_nor_changed_nor_revealed(
    line: Line, words: Callable[[str], list[str]], tmp_path: Path, text: str
) -> None:
    """The answer is the same whether they exist or not."""
    shown = []
    scope = [] if "-A" in text else ["-n", "b"]
    for there in (True, False):
        folder = tmp_path / str(there)
        folder.mkdir()
        async with a_fleet(folder, with_b=there) as fleet:
            before = dict(fleet.plane.trees)
            url = str(fleet.client.make_url(""))
            seen = await line(url).run(*words(text), *scope, token=TOKENS["ann"])
            assert fleet.plane.trees == before
            assert fleet.plane.touched == []
        shown.append((seen.code, seen.out, seen.err.replace(url.rstrip("/"), "URL")))
    assert shown[0] == shown[1]
    assert shown[0][:2] == (ExitCode.REFUSED, "")


async def test_get_all_shows_the_kinds_that_the_user_may_see(
    fleet: Fleet, line: Line
) -> None:
    shown = await line(str(fleet.client.make_url(""))).run(
        "get", "md,ic", "-n", "a", "-o", "name", token=TOKENS["ann"]
    )
    assert (shown.code, shown.out) == (ExitCode.DONE, "modeldeployment/mine\n")
    assert shown.err == "warning: you may not do this with inferenceclusters\n"
    shown = await line(str(fleet.client.make_url(""))).run(
        "get", "md", "-A", "-o", "name", token=TOKENS["root"]
    )
    assert shown.out.split() == ["modeldeployment/mine", "modeldeployment/other"]


async def test_a_deletion_by_labels_fails_if_the_user_may_not_list_a_kind(
    fleet: Fleet, line: Line
) -> None:
    shown = await line(str(fleet.client.make_url(""))).run(
        "delete", "md,ic", "-l", "tier=gold", "-n", "a", token=TOKENS["ann"]
    )
    assert (shown.code, shown.out) == (ExitCode.REFUSED, "")
    assert fleet.plane.touched == []


async def test_a_request_to_a_model_uses_the_gateway_of_the_front_not_the_local_one(
    line: Line, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = service()
    tree["status"]["address"] = "http://127.0.0.1:2/ml/chat"
    async with answering(always(Said(200, tree))) as front:
        commands = line(front.url)
        (tmp_path / "home").mkdir()
        (tmp_path / "home" / "config.yaml").write_text("log: {level: info}\n")
        monkeypatch.setattr(
            "client.local.gateway.local_gateway_url", lambda _: "http://127.0.0.1:3"
        )
        for words in (["chat", "chat", "hello"], ["curl", "chat", "/v1/models"]):
            shown = await commands.run(*words, "-n", "ml", token=TOKENS["ann"])
            assert (shown.code, "http://127.0.0.1:2/ml/chat" in shown.err) == (
                ExitCode.UNREACHABLE,
                True,
            ), shown
    assert len(front.asked) == 2
