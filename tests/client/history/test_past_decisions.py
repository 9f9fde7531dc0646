"""Past decisions on a real server: their list, and their repetition from recorded
inputs.
"""

import asyncio
import json
import re
import uuid
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from temporalio.client import WorkflowHistory

from api_types import names
from api_types.messages.scheduling import SetPolicy
from api_types.resources.kinds import BY_KIND
from api_types.settings import Settings
from client.history import past_decisions as history
from client.history.past_decisions import (
    DecisionId,
    decide_again,
    past_decisions,
    read_id,
)
from fleet_client.errors import CommandFailed, NotFound
from fleet_client.refs.targets import Target
from fleet_client.refs.tree import Tree
from fleet_client.temporal.connection import connect
from fleet_client.temporal.control_plane import ControlPlane
from scheduler import SCHEDULER_VERSION
from scheduler.placement.score import ClusterScorer
from tests.client.conftest import Cli
from tests.wire.test_encryption import Fleet as EncryptedFleet
from tests.workflows.environment.harness import a_deployment, condition, eventually
from tests.workflows.environment.protocol_fleet import (
    NAMESPACE,
    ProtocolFleet,
    ReportedCluster,
    protocol_fleet,
    protocol_server,
)
from tests.workflows.environment.simulated_fleet import (
    apply_clusters,
    simulated_fleet,
    until_known,
)
from workflows.fleet_scheduler import decide_activity

pytestmark = [pytest.mark.testbed("shared"), pytest.mark.usefixtures("no_settings")]

NEED_BYTES_MAX = 3_000
SHORT_RUN = 60


@pytest.fixture
def no_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MODELPLANE_HOME", str(tmp_path))


def md(name: str) -> Target:
    return Target.of(BY_KIND["ModelDeployment"], NAMESPACE, name)


def control_plane(fleet: ProtocolFleet) -> ControlPlane:
    return ControlPlane(fleet.client, Settings())


async def listed(
    plane: ControlPlane, name: str, *, most: int = 100, runs_max: int = 100
) -> list[Tree]:
    """Return the decisions about a deployment, the latest first."""
    found = await past_decisions(
        plane, md(name), most=most, runs_max=runs_max, show=lambda *_: None
    )
    assert found.unread == []
    return found.decisions


async def until_decided(
    plane: ControlPlane, name: str, holds: Callable[[Tree], bool]
) -> None:
    """Wait until the latest decision about a deployment passes a check."""
    await eventually(
        lambda: listed(plane, name),
        lambda found: bool(found) and holds(found[0]),
        what=f"a decision about {name}",
    )


async def placed(fleet: ProtocolFleet, name: str) -> None:
    await eventually(
        lambda: fleet.describe(name),
        lambda seen: bool(seen) and condition(seen, "ReplicasScheduled") == "True",
        what=f"{name} placed",
    )


def urgent(name: str) -> dict[str, Any]:
    """A deployment that preempts others."""
    document = a_deployment(name, NAMESPACE)
    document["spec"]["scheduling"] = {
        "priorityClassName": "high",
        "preemptionPolicy": "LowerPriority",
    }
    return document


def large(name: str) -> dict[str, Any]:
    """A deployment whose request is larger than the scheduler of this test reads."""
    return a_deployment(
        name,
        NAMESPACE,
        clusterSelector={
            "matchLabels": {f"key-{number}": "v" * 60 for number in range(60)}
        },
    )


@pytest_asyncio.fixture(scope="module")
async def fleet() -> AsyncIterator[ProtocolFleet]:
    """Two clusters with a node each.

    `chat` was placed, scaled, short of room, and preempted.
    """
    async with protocol_fleet(clients=1) as fleet:
        scheduler = fleet.client.get_workflow_handle(names.FLEET_SCHEDULER_ID)
        await scheduler.signal(
            "set_policy",
            SetPolicy(
                policy={"profile": "dense", "priorityClasses": {"high": 100}}
            ).wire(),
        )
        await fleet.add(
            [ReportedCluster("eu", {"p": 1}), ReportedCluster("us", {"p": 1})]
        )
        await fleet.apply(a_deployment("chat", NAMESPACE))
        await placed(fleet, "chat")
        plane = control_plane(fleet)
        for replicas in (2, 3):
            await fleet.scale("chat", replicas, f"to-{replicas}")
            await until_decided(
                plane,
                "chat",
                lambda seen, replicas=replicas: seen["desired"] == replicas,  # type: ignore[misc]
            )
        await fleet.apply(urgent("vip"))
        await placed(fleet, "vip")
        yield fleet


async def test_decisions_are_listed_and_repeated_with_the_same_results(
    fleet: ProtocolFleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    plane = control_plane(fleet)
    with monkeypatch.context() as patched:
        patched.setattr(decide_activity, "NEED_BYTES_MAX", NEED_BYTES_MAX)
        await fleet.apply(large("huge"))
        await until_decided(plane, "huge", lambda seen: seen["problem"] != "")
        (refused, *_) = await listed(plane, "huge")
        assert f"at most {NEED_BYTES_MAX} can be sent" in refused["problem"]
        assert (refused["outcome"]["missing"], refused["reason"]) == (1, "")
        assert (await decide_again(plane, read_id(refused["id"])))["same"]
    # A readable request is decided.
    again = await decide_again(plane, read_id(refused["id"]))
    assert [each["what"] for each in again["differences"]] == ["outcome"]
    assert again["differences"][0]["recorded"] == f"not decided: {refused['problem']}"

    chat, vip = await listed(plane, "chat"), await listed(plane, "vip")
    first, second, third = list(reversed(chat))[:3]
    assert (first["outcome"]["created"], first["reason"]) == (
        1,
        "1 of 1 replicas scheduled",
    )
    assert (second["outcome"]["kept"], second["outcome"]["created"]) == (1, 1)
    assert (third["outcome"]["kept"], third["outcome"]["missing"]) == (2, 1)
    assert "0/2 clusters are available" in third["reason"]
    assert {each["schedulerVersion"] for each in [*chat, *vip]} == {SCHEDULER_VERSION}
    assert vip[-1]["outcome"]["preempted"] == 1
    for each in [*chat, *vip]:
        replayed = await decide_again(plane, read_id(each["id"]))
        assert (replayed["same"], replayed["differences"]) == (True, [])
        # The repeated decisions are the listed ones.
        assert {key: replayed[key] for key in each} == each
    # Each decision had another state of the fleet.
    assert len({each["inputs"] for each in [first, second, third, vip[-1]]}) == 4
    assert await listed(plane, "chat", most=2) == chat[:2]


async def test_the_commands_list_and_repeat_decisions_and_report_errors(
    fleet: ProtocolFleet, monkeypatch: pytest.MonkeyPatch, cli: Cli
) -> None:
    monkeypatch.setenv(
        "MODELPLANE_TEMPORAL__ADDRESS", fleet.client.service_client.config.target_host
    )

    async def run(*words: str) -> tuple[int, str, str]:
        result = await asyncio.to_thread(cli, *words)
        return result.code, result.out, result.err

    code, out, _ = await run("decisions", "md/chat", "-n", NAMESPACE)
    header, *rows = out.splitlines()
    assert (code, header.split()) == (
        0,
        ["ID", "TIME", "VERSION", "INPUTS", "WANTED", "OUTCOME", "REASON"],
    )
    assert " ".join(rows[-1].split()).endswith("1 1 created 1 of 1 replicas scheduled")
    found = json.loads(
        (
            await run(
                "decisions", "md/chat", "-n", NAMESPACE, "-o", "json", "--limit", "1"
            )
        )[1]
    )
    assert [rows[0].split()[0]] == [each["id"] for each in found]
    wide = (await run("decisions", "md/chat", "-n", NAMESPACE, "-o", "wide"))[1]
    assert found[0]["inputs"] in wide
    assert found[0]["requestId"] in wide
    code, out, _ = await run("replay-decision", found[0]["id"])
    assert (code, out.splitlines()[-1]) == (
        0,
        f"Same answer (scheduler {SCHEDULER_VERSION}).",
    )
    # A different answer has its own exit code.
    monkeypatch.setattr(history, "SCHEDULER_VERSION", "9.0.0")
    monkeypatch.setattr(ClusterScorer, "ranked", lambda *_: iter(()))
    code, out, _ = await run("replay-decision", rows[-1].split()[0])
    assert code == 1
    assert f"Another answer (scheduler 9.0.0, recorded by {SCHEDULER_VERSION})" in out
    assert re.search(
        r"^  - placement: Create chat-\w+ on eu \(main: p\), uid \S+$",
        out,
        flags=re.MULTILINE,
    )
    assert "+ missing replicas: 1" in out
    assert out.splitlines()[-1].startswith("The versions differ. After an upgrade")
    code, out, err = await run("decisions", "md/nobody", "-n", NAMESPACE)
    assert (code, out) == (3, "")
    assert (
        "no decision about ModelDeployment ml-team/nobody is in the latest 1 "
        "of 1 stored runs of the scheduler" in err
    )
    code, _, err = await run(
        "replay-decision", str(DecisionId(str(uuid.uuid4()), 1, 1))
    )
    assert code == 3
    assert "it belongs to another fleet, or its retention has ended" in err
    code, _, err = await run(
        "replay-decision", str(read_id(found[0]["id"])._replace(position=77))
    )
    assert code == 3
    assert "has no decision" in err


async def test_other_rules_lead_to_a_different_decision_which_is_shown(
    fleet: ProtocolFleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    plane = control_plane(fleet)
    first = (await listed(plane, "chat"))[-1]
    ranked = ClusterScorer.ranked
    monkeypatch.setattr(
        ClusterScorer, "ranked", lambda *arguments: reversed(list(ranked(*arguments)))
    )
    again = await decide_again(plane, read_id(first["id"]))
    assert not again["same"]
    placements = [each for each in again["differences"] if each["what"] == "placement"]
    assert " on eu (main: p), uid " in placements[0]["recorded"]
    assert " on us (main: p), uid " in placements[1]["now"]
    assert (again["schedulerVersion"], again["replayedWith"]) == (
        SCHEDULER_VERSION,
        SCHEDULER_VERSION,
    )


class Tampered(ControlPlane):
    """A control plane with changed histories."""

    def __init__(
        self, plane: ControlPlane, change: Callable[[WorkflowHistory], None]
    ) -> None:
        super().__init__(plane.client, plane.settings)
        self._change = change

    async def history(self, target: Target, run_id: str) -> WorkflowHistory:
        found = await super().history(target, run_id)
        self._change(found)
        return found


def fewer_nodes(found: WorkflowHistory) -> None:
    """A changed input: the report of a cluster without nodes."""
    changed = 0
    for event in found.events:
        signalled = event.workflow_execution_signaled_event_attributes
        if (
            signalled.signal_name == "report_cluster"
            and b'"name":"eu"' in signalled.input.payloads[0].data.replace(b" ", b"")
        ):
            payload = signalled.input.payloads[0]
            tree = json.loads(payload.data)
            tree["manifest"]["status"]["gpuPools"][0]["nodes"] = 0
            payload.data = json.dumps(tree).encode()
            changed += 1
    assert changed


def another_message(found: WorkflowHistory) -> None:
    """A changed result: another decision."""
    changed = 0
    for event in found.events:
        if not event.HasField("marker_recorded_event_attributes"):
            continue
        for payload in event.marker_recorded_event_attributes.details[
            "result"
        ].payloads:
            changed += payload.data.count(b"1 of 1 replicas scheduled")
            payload.data = payload.data.replace(
                b"1 of 1 replicas scheduled", b"1 of 1 replicas, it is said"
            )
    assert changed


async def test_a_changed_history_leads_to_a_different_decision(
    fleet: ProtocolFleet,
) -> None:
    plane = control_plane(fleet)
    first = (await listed(plane, "chat"))[-1]
    again = await decide_again(Tampered(plane, fewer_nodes), read_id(first["id"]))
    assert again["inputs"] != first["inputs"]
    placements = [each for each in again["differences"] if each["what"] == "placement"]
    assert " on eu (main: p), uid " in placements[0]["recorded"]
    assert " on us (main: p), uid " in placements[1]["now"]
    again = await decide_again(Tampered(plane, another_message), read_id(first["id"]))
    assert again["inputs"] == first["inputs"]
    assert again["differences"][0]["what"] == "message"
    assert "1 of 1 replicas, it is said" in again["differences"][0]["recorded"]


async def test_decisions_of_runs_before_and_of_a_scheduler_that_was_lost_are_read() -> (
    None
):
    async with simulated_fleet(clients=1, events=SHORT_RUN) as fleet:
        plane = control_plane(fleet)
        await apply_clusters(fleet, {"eu": {"gpus": 9}, "us": {"gpus": 9}})
        await fleet.apply(a_deployment("chat", NAMESPACE))
        await placed(fleet, "chat")
        replicas = 1

        async def scaled() -> int:
            """Scale, and count the runs that have decided so far."""
            nonlocal replicas
            replicas = replicas % 9 + 1
            await fleet.scale("chat", replicas, f"to-{uuid.uuid4()}")
            await asyncio.sleep(0.5)
            return len(
                {each["id"].split(".")[0] for each in await listed(plane, "chat")}
            )

        before = await eventually(
            scaled,
            lambda count: count > 1,
            what="a decision of a second run",
            longest_pause=0.1,
        )
        await fleet.terminate_scheduler("rebuild: lost on purpose")
        await until_known(fleet, 2)
        await eventually(
            scaled,
            lambda count: count > before,
            what="a decision after the rebuild",
            longest_pause=0.1,
        )
        decisions = await listed(plane, "chat")
        assert decisions == sorted(
            decisions, key=lambda each: each["time"], reverse=True
        )
        for each in decisions:
            assert (await decide_again(plane, read_id(each["id"])))["differences"] == []
        latest = decisions[0]["id"].split(".")[0]
        assert {
            each["id"].split(".")[0] for each in await listed(plane, "chat", runs_max=1)
        } == {latest}


async def test_encrypted_histories_are_read_with_the_key_and_refused_without(
    tmp_path: Path,
) -> None:
    async with protocol_server() as plain:
        encrypted = EncryptedFleet(plain, tmp_path)
        async with encrypted.served("one") as client:
            fleet = ProtocolFleet(client, [client], workers=None)  # type: ignore[arg-type]
            await fleet.add([ReportedCluster("eu", {"p": 1})])
            await fleet.apply(a_deployment("chat", NAMESPACE))
            await placed(fleet, "chat")
            (decision,) = await listed(control_plane(fleet), "chat")
            assert (await decide_again(control_plane(fleet), read_id(decision["id"])))[
                "same"
            ]
        # No worker is needed, but the key is.
        with_key = encrypted.settings("one")
        assert (
            await decide_again(
                ControlPlane(await connect(with_key), with_key), read_id(decision["id"])
            )
        )["same"]
        for settings in (
            encrypted.settings("two"),
            Settings(temporal=with_key.temporal),
        ):
            plane = ControlPlane(await connect(settings), settings)
            with pytest.raises(
                CommandFailed,
                match="encrypted with a key that this program does not have",
            ) as refused:
                await decide_again(plane, read_id(decision["id"]))
            assert "encryption.keys" in refused.value.next_step
            found = await past_decisions(
                plane, md("chat"), most=9, runs_max=9, show=lambda *_: None
            )
            assert (found.decisions, len(found.unread)) == ([], 1)


async def test_a_run_that_temporal_does_not_keep_is_refused_in_words(
    fleet: ProtocolFleet,
) -> None:
    with pytest.raises(NotFound, match="its retention has ended") as refused:
        await decide_again(control_plane(fleet), DecisionId(str(uuid.uuid4()), 1, 1))
    assert "retention" in refused.value.details[0]
