"""Only the owner may order the activities of a stack.

Without this check, everyone who can start workflows could order any activity.
"""

from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from activities.clients.helm.pool import HelmClients
from activities.clients.kubernetes.pool import KubernetesPool
from activities.clients.secrets.directory import SecretDirectory
from activities.stack.activities import StackActivities
from api_types.errors import CredentialsInvalid, PermissionDenied
from api_types.messages.cluster_work import Connection
from api_types.messages.stack import (
    ApplyChartCrds,
    ApplyStackObjects,
    AwaitNoRoutes,
    CheckStack,
    EnsureRelease,
    HelmRelease,
    ListLoadBalancers,
    PreflightStack,
    PurgeDefinitions,
    RemoveFinalizer,
    RemoveStackObjects,
    StackOrder,
    UninstallRelease,
)
from api_types.sections.clusters import KubeconfigSettings
from api_types.sections.stacks import StackSettings
from tests.activities.environment.asking import asked_by
from tests.environment.cached_programs import with_cached_helm

RELEASE = HelmRelease(
    name="mp-lws",
    namespace="lws-system",
    chart="lws",
    repository="https://charts.example.com",
    version="v0.8.0",
)


def orders() -> dict[str, Any]:
    """Return one order for each activity, by its name."""
    connection = Connection(
        cluster="eu-1", namespace="modelplane-system", name="no-such-secret"
    )
    base: dict[str, Any] = {"connection": connection, "cluster_uid": "u"}
    return {
        "preflight_stack": PreflightStack(source="Existing", **base),
        "apply_stack_objects": ApplyStackObjects(spec={}, group="namespaces", **base),
        "apply_chart_crds": ApplyChartCrds(releases=[RELEASE], **base),
        "helm_ensure": EnsureRelease(release=RELEASE, **base),
        "stack_readiness": CheckStack(source="Existing", spec={}, plan="p", **base),
        "restart_ai_gateway": StackOrder(**base),
        "await_no_routes": AwaitNoRoutes(**base),
        "remove_stack_objects": RemoveStackObjects(spec={}, group="namespaces", **base),
        "helm_uninstall": UninstallRelease(
            name=RELEASE.name, namespace=RELEASE.namespace, **base
        ),
        "purge_definitions": PurgeDefinitions(releases=[RELEASE], **base),
        "remove_finalizer": RemoveFinalizer(
            object="v1/Service/default/x", finalizer="example.com/x", **base
        ),
        "list_load_balancers": ListLoadBalancers(**base),
    }


@pytest_asyncio.fixture
async def activities(tmp_path: Path) -> StackActivities:
    """Activities of a worker whose secret store is empty.

    An order that passes the check ends with CredentialsInvalid.
    """
    pool = KubernetesPool(SecretDirectory(tmp_path), KubeconfigSettings())
    return StackActivities(
        pool, HelmClients(pool, with_cached_helm(StackSettings())), StackSettings()
    )


def test_every_activity_of_a_stack_has_an_order() -> None:
    found = {
        name
        for name in dir(StackActivities)
        if hasattr(getattr(StackActivities, name), "__temporal_activity_definition")
    }
    # The InferenceGateway orders the other one:
    # tests/activities/routing/test_installation.py.
    assert found == {*orders(), "run_install_step"}


@pytest.mark.parametrize("name", orders())
async def test_the_cluster_itself_may_order(
    activities: StackActivities, name: str
) -> None:
    with pytest.raises(CredentialsInvalid):
        await asked_by("inferencecluster/eu-1").run(
            getattr(activities, name), orders()[name]
        )


@pytest.mark.parametrize(
    "workflow_id",
    [
        "inferencecluster/eu-2",
        "modelreplica/team-a/eu-1",
        "inferencecluster/team-a/eu-1",
        "inferencegateway/default",
        "anything",
    ],
)
@pytest.mark.parametrize("name", orders())
async def test_an_order_of_another_workflow_is_rejected(
    activities: StackActivities, name: str, workflow_id: str
) -> None:
    with pytest.raises(PermissionDenied, match=r"may not act for|may not call"):
        await asked_by(workflow_id).run(getattr(activities, name), orders()[name])
