"""Tables, machine-readable forms and progress."""

import io
import json
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

import pytest
from rich.console import Console
from temporalio.api.common.v1 import ActivityType
from temporalio.api.failure.v1 import ApplicationFailureInfo, Failure, ServerFailureInfo
from temporalio.api.workflow.v1 import PendingActivityInfo

from api_types.resources.kinds import BY_KIND
from client.commands.inspect.events import in_order
from client.failures import combine, exit_code_of, report
from client.output import printer
from client.output.columns import TableLayout, header, row
from client.output.formats import Format, render
from client.output.printer import warn_unanswered
from client.output.progress import Progress, Row
from fleet_client.advice import advice
from fleet_client.errors import CommandFailed, Refused, TimedOut
from fleet_client.refs.seen import ListedObject
from fleet_client.refs.targets import Target
from fleet_client.refs.tree import Tree
from fleet_client.temporal.execution import failing_steps

NOW = datetime(2026, 3, 1, 12, 1, 0, tzinfo=UTC)
QWEN = Target.of(BY_KIND["ModelDeployment"], "ml", "qwen")
OSLO = Target.of(BY_KIND["InferenceCluster"], None, "oslo")


def a_deployment(
    *, ready: str = "True", reason: str = "Available", message: str = ""
) -> Tree:
    blocking = (
        [
            {
                "type": "ReplicasScheduled",
                "status": "False",
                "reason": reason,
                "message": message,
            }
        ]
        if message
        else []
    )
    return {
        "apiVersion": "modelplane.ai/v1alpha1",
        "kind": "ModelDeployment",
        "metadata": {
            "name": "qwen",
            "namespace": "ml",
            "creationTimestamp": "2026-03-01T12:00:00Z",
            "labels": {"team": "a", "app": "b"},
        },
        "spec": {"replicas": 2},
        "status": {
            "phase": "Ready",
            "replicas": {"ready": 2, "total": 3},
            "conditions": [
                *blocking,
                {"type": "Ready", "status": ready, "reason": reason},
            ],
        },
        "appliedRequestIds": ["x"],
    }


def a_cluster(source: str, address: str | None) -> Tree:
    gateway = {"gateway": {"address": address}} if address else {}
    return {
        "kind": "InferenceCluster",
        "metadata": {"name": "oslo"},
        "spec": {"cluster": {"source": source}},
        "status": gateway,
    }


class Case(NamedTuple):
    """An object, the way it is requested, and its table."""

    story: str
    wanted: Target
    tree: Tree
    layout: TableLayout
    titles: list[str]
    cells: list[str]


DRAINED = {
    "type": "SchedulingDisabled",
    "status": "True",
    "reason": "Drained",
    "message": "drained by ann@host",
}
TABLES = [
    Case(
        "a drained cluster shows it where kubectl shows it of a node, and wide who drained it",
        OSLO,
        {
            **a_cluster("Existing", "10.0.0.1"),
            "status": {
                "phase": "Ready",
                "conditions": [
                    {"type": "Ready", "status": "True", "reason": "Available"},
                    DRAINED,
                ],
            },
        },
        TableLayout(wide=True),
        ["NAME", "SOURCE", "GATEWAY", "READY", "AGE", "PHASE", "REASON", "MESSAGE"],
        [
            "oslo",
            "Existing",
            "",
            "True,SchedulingDisabled",
            "<unknown>",
            "Ready",
            "Available",
            "drained by ann@host",
        ],
    ),
    Case(
        "an object whose deletion waits for its users shows that, and wide says who they are",
        OSLO,
        {
            **a_cluster("Existing", "10.0.0.1"),
            "metadata": {"name": "oslo", "deletionTimestamp": "2026-01-01T00:00:00Z"},
            "status": {
                "phase": "Deleting",
                "conditions": [
                    {"type": "Ready", "status": "True", "reason": "Available"},
                    {
                        "type": "Deleting",
                        "status": "False",
                        "reason": "Occupied",
                        "message": "waits for ml/chat-0",
                    },
                ],
            },
        },
        TableLayout(wide=True),
        ["NAME", "SOURCE", "GATEWAY", "READY", "AGE", "PHASE", "REASON", "MESSAGE"],
        [
            "oslo",
            "Existing",
            "",
            "True,Deleting(Occupied)",
            "<unknown>",
            "Deleting",
            "Occupied",
            "waits for ml/chat-0",
        ],
    ),
    Case(
        "a deployment shows ready replicas",
        QWEN,
        a_deployment(),
        TableLayout(),
        ["NAME", "REPLICAS", "READY", "AGE"],
        ["qwen", "2", "True", "60s"],
    ),
    Case(
        "a cluster shows source and gateway",
        OSLO,
        a_cluster("Existing", "10.0.0.1"),
        TableLayout(),
        ["NAME", "SOURCE", "GATEWAY", "READY", "AGE"],
        ["oslo", "Existing", "10.0.0.1", "", "<unknown>"],
    ),
    Case(
        "all namespaces",
        QWEN,
        a_deployment(),
        TableLayout(namespaces=True),
        ["NAMESPACE", "NAME", "REPLICAS", "READY", "AGE"],
        ["ml", "qwen", "2", "True", "60s"],
    ),
    Case(
        "a cluster has no namespace to show",
        OSLO,
        a_cluster("GKE", None),
        TableLayout(namespaces=True),
        ["NAME", "SOURCE", "GATEWAY", "READY", "AGE"],
        ["oslo", "GKE", "", "", "<unknown>"],
    ),
    Case(
        "wide tells why it is not Ready",
        QWEN,
        a_deployment(
            ready="False", reason="InsufficientCapacity", message="0 of 2\nreplicas"
        ),
        TableLayout(wide=True),
        ["NAME", "REPLICAS", "READY", "AGE", "PHASE", "REASON", "MESSAGE"],
        [
            "qwen",
            "2",
            "False",
            "60s",
            "Ready",
            "InsufficientCapacity",
            "0 of 2 replicas",
        ],
    ),
    Case(
        "labels, sorted",
        QWEN,
        a_deployment(),
        TableLayout(labels=True),
        ["NAME", "REPLICAS", "READY", "AGE", "LABELS"],
        ["qwen", "2", "True", "60s", "app=b,team=a"],
    ),
    Case(
        "several kinds",
        QWEN,
        a_deployment(),
        TableLayout(kinds=True),
        ["NAME", "REPLICAS", "READY", "AGE"],
        ["modeldeployment/qwen", "2", "True", "60s"],
    ),
]


@pytest.mark.parametrize("case", TABLES, ids=lambda case: case.story)
def test_tables_have_the_printer_columns_of_their_kind(case: Case) -> None:
    assert header(case.wanted.kind, case.layout) == case.titles
    assert (
        row(case.wanted.kind, ListedObject(case.wanted, case.tree), case.layout, NOW)
        == case.cells
    )


def test_objects_that_did_not_answer_are_marked_as_last_known() -> None:
    assert row(
        QWEN.kind,
        ListedObject(QWEN, a_deployment(), answered=False),
        TableLayout(),
        NOW,
    ) == ["qwen", "2?", "True?", "60s"]


def test_a_single_object_is_printed_bare_and_several_as_a_list() -> None:
    one = json.loads(render([a_deployment()], Format.JSON, single=True))
    several = json.loads(
        render([a_deployment(), a_deployment()], Format.JSON, single=False)
    )
    assert one["metadata"]["name"] == "qwen"
    assert "appliedRequestIds" not in one
    assert (several["apiVersion"], several["kind"], len(several["items"])) == (
        "v1",
        "List",
        2,
    )


def test_json_has_sorted_keys_so_that_outputs_can_be_compared() -> None:
    shuffled = dict(reversed(list(a_deployment().items())))
    assert render([a_deployment()], Format.JSON, single=True) == render(
        [shuffled], Format.JSON, single=True
    )


def test_names_can_be_given_to_the_next_command() -> None:
    assert render([a_deployment()], Format.NAME, single=False) == "modeldeployment/qwen"


def test_yaml_keeps_the_order_of_a_manifest() -> None:
    lines = render([a_deployment()], Format.YAML, single=True).splitlines()
    assert [line for line in lines if not line.startswith((" ", "-"))] == [
        "apiVersion: modelplane.ai/v1alpha1",
        "kind: ModelDeployment",
        "metadata:",
        "spec:",
        "status:",
    ]


def test_events_of_several_objects_are_reported_in_their_order_of_time() -> None:
    early, late = (
        {"reason": "A", "last": "2026-03-01T10:00:00Z"},
        {"reason": "B", "last": "2026-03-01T11:00:00Z"},
    )
    found = [
        ListedObject(QWEN, {"status": {"events": [late]}}),
        ListedObject(OSLO, {"status": {"events": [early]}}),
    ]
    assert [(one.target.name, one.event["reason"]) for one in in_order(found)] == [
        ("oslo", "A"),
        ("qwen", "B"),
    ]


def test_objects_that_do_not_answer_are_counted_with_the_time_they_had(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(printer, "ANSWER_WAIT", timedelta(seconds=1.5))
    warn_unanswered([ListedObject(QWEN, {}), ListedObject(OSLO, {}, answered=False)])
    assert "1 of 2 objects did not answer within 1.5 s" in capsys.readouterr().err


def test_a_failure_shows_the_error_the_facts_and_the_next_step() -> None:
    failure = Refused(
        "it is wrong", details=["spec.a: bad", "spec.b: worse"], next_step="fix it"
    )
    assert report(failure).splitlines() == [
        "error: it is wrong",
        "  spec.a: bad",
        "  spec.b: worse",
        "next: fix it",
    ]


def test_of_several_failures_the_worst_decides_and_all_are_reported() -> None:
    joined = combine(
        [
            Refused("a", next_step="fix a"),
            TimedOut("b", details=["why"], next_step="wait"),
            CommandFailed("c", next_step="see c"),
        ]
    )
    assert (exit_code_of(joined), list(joined.details), joined.next_step) == (
        5,
        ["a", "b", "  why", "c"],
        "fix a",
    )


def test_advice_names_the_object_so_that_the_command_can_be_typed() -> None:
    starting = a_deployment(
        ready="False", reason="ModelStarting", message="0 of 2 ready"
    )
    assert (
        advice(QWEN, starting)
        == "`modelplane get mr -n ml -o wide` shows each replica and its reason"
    )
    assert (
        advice(QWEN, a_deployment(ready="False", reason="Mystery", message="?")) == ""
    )


def test_a_step_that_fails_is_reported_with_its_message_also_when_the_server_cut_them_off() -> (
    None
):
    own = Failure(
        message="no answer from\nhttps://10.0.0.1",
        application_failure_info=ApplicationFailureInfo(type="ClusterUnreachable"),
    )
    cut = Failure(
        message="Failure exceeds size limit.",
        server_failure_info=ServerFailureInfo(),
        cause=own,
    )
    pending = [
        PendingActivityInfo(
            activity_type=ActivityType(name="connect_cluster"),
            attempt=3,
            last_failure=own,
        ),
        PendingActivityInfo(
            activity_type=ActivityType(name="apply_replica"),
            attempt=2,
            last_failure=cut,
        ),
        PendingActivityInfo(
            activity_type=ActivityType(name="watch_cluster"), attempt=1
        ),
    ]
    assert failing_steps(pending) == [
        "connect_cluster, attempt 3: no answer from https://10.0.0.1",
        "apply_replica, attempt 2: no answer from https://10.0.0.1",
    ]


def test_progress_off_a_terminal_is_one_line_per_change() -> None:
    stream = io.StringIO()
    with Progress(Console(file=stream, width=40)) as progress:
        for state, done in (
            ("waiting", False),
            ("waiting", False),
            ("Ready, with a text that is longer than the line", True),
        ):
            progress.show([Row("md/qwen", state, done)])
    assert stream.getvalue().splitlines() == [
        "… md/qwen: waiting",
        "✓ md/qwen: Ready, with a text that is longer than the line",
    ]


def test_progress_on_a_terminal_leaves_the_last_state_behind() -> None:
    stream = io.StringIO()
    with Progress(
        Console(file=stream, width=80, force_terminal=True, color_system=None)
    ) as progress:
        progress.show([Row("md/qwen", "waiting")])
        progress.show([Row("md/qwen", "Ready", done=True)])
    assert stream.getvalue().rstrip().endswith("✓ md/qwen: Ready")
