"""The build that a worker reports to Temporal, and its readiness."""

from typing import Any

import pytest
from pydantic import ValidationError
from temporalio.common import VersioningBehavior, WorkerDeploymentVersion
from temporalio.service import RPCError, RPCStatusCode
from temporalio.worker import WorkerDeploymentConfig

import worker
from api_types import queues
from api_types.sections.programs import WorkerSettings
from api_types.sections.temporal import QueueSettings
from api_types.settings import Settings
from fleet_client.temporal.build import build_of_sources

STAMPED = "v0.1.0-12-gabc1234"
VERSIONED = WorkerDeploymentConfig(
    version=WorkerDeploymentVersion("modelplane", STAMPED),
    use_worker_versioning=True,
    default_versioning_behavior=VersioningBehavior.AUTO_UPGRADE,
)


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch) -> dict[str, dict[str, Any]]:
    """The options of each worker by task queue; no worker is created."""
    options: dict[str, dict[str, Any]] = {}

    def keep(client: Any, queue: str, **given: Any) -> None:
        del client
        options[queue] = {
            name: given[name]
            for name in ("build_id", "deployment_config")
            if name in given
        }

    monkeypatch.setattr(worker, "build_worker", keep)
    return options


def build_workers(**limits: str) -> None:
    settings = Settings(worker=WorkerSettings(**limits))
    activities = worker.build_activities(settings)
    worker.build_workers(None, settings, activities, None)  # type: ignore[arg-type]


def test_only_workflow_workers_are_versioned(
    built: dict[str, dict[str, Any]],
) -> None:
    build_workers(deployment_name="modelplane", build_id=STAMPED)
    of_workflows = {queues.WORKFLOWS, queues.SCHEDULER}
    assert of_workflows < set(built)
    assert built == {
        queue: {"deployment_config": VERSIONED}
        if queue in of_workflows
        else {"build_id": STAMPED}
        for queue in built
    }


def test_without_a_deployment_workers_report_their_build_unversioned(
    built: dict[str, dict[str, Any]],
) -> None:
    build_workers()
    assert list(built.values()) == [{"build_id": build_of_sources()}] * len(built)


VERSIONED_LIMITS = WorkerSettings(deployment_name="modelplane", build_id=STAMPED)
READINESS = [
    ("its build is current", Settings(worker=VERSIONED_LIMITS), STAMPED, ""),
    (
        "another build is current",
        Settings(worker=VERSIONED_LIMITS),
        "v0.1.0",
        (
            f"build {STAMPED} is not current, v0.1.0 is: run `modelplane workers promote "
            f"{STAMPED}` to let it run the workflows"
        ),
    ),
    (
        "Temporal is away",
        Settings(worker=VERSIONED_LIMITS),
        None,
        "cannot query the current build from Temporal: it is away",
    ),
    (
        "a worker beside a cluster",
        Settings(
            worker=VERSIONED_LIMITS, queues=QueueSettings(serve=(queues.CLUSTERS,))
        ),
        None,
        "",
    ),
    ("a worker without versioning", Settings(), None, ""),
]


@pytest.mark.parametrize(
    ("story", "settings", "current", "said"),
    READINESS,
    ids=[case[0] for case in READINESS],
)
async def test_a_worker_is_ready_once_it_runs_its_workflows(
    story: str,
    settings: Settings,
    current: str | None,
    said: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    del story

    async def asked(_: Any, deployment: str) -> str:
        assert deployment == "modelplane"
        if current is None:
            raise RPCError("it is away", RPCStatusCode.UNAVAILABLE, b"")
        return current

    monkeypatch.setattr(worker, "current_build", asked)
    assert await worker.why_unready(None, settings) == said  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("limits", "said"),
    [
        (
            {"build_id": "a" * 64},
            "must have up to 63 letters, digits, '-', '.' and '_'",
        ),
        ({"build_id": "feature/x"}, "`git describe --always --dirty` prints one"),
        ({"build_id": "-1"}, "like a label value"),
        (
            {"build_id": "unversioned"},
            "must not be `unversioned`, which stands for workers without versioning",
        ),
        (
            {"deployment_name": "model.plane"},
            "must have up to 63 lower-case letters, digits and '-'",
        ),
        (
            {"deployment_name": "model:plane"},
            "must have up to 63 lower-case letters, digits and '-'",
        ),
    ],
)
def test_a_setting_with_a_name_that_temporal_rejects_is_rejected(
    limits: dict[str, str], said: str
) -> None:
    with pytest.raises(ValidationError, match="worker") as refused:
        Settings(worker=limits)
    assert said in str(refused.value)
