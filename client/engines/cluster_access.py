"""Opens the API server of a cluster with the kubeconfig in the fleet's secret store.

This is the access of a worker. A user without read access to the secret store cannot
open a cluster, and gets the kubectl command to use instead.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from api_types.errors import (
    ActionRequiredError,
    ClusterUnreachable,
    ModelplaneError,
    PermissionDenied,
)
from api_types.messages.cluster_work import Connection
from api_types.resources.kinds import BY_KIND
from client.engines.workloads import EngineWorkload
from fleet_client.configuration import front_named
from fleet_client.errors import CommandFailed, Forbidden, Refused, Unreachable
from fleet_client.objects import FleetObjects
from fleet_client.refs.targets import Target
from fleet_client.refs.tree import at_path
from workflows.inference_cluster.spec import existing_connection

_CLUSTER = "InferenceCluster"
_OWN_ACCESS = "use your own access to the cluster, with the command above"


def require_direct_way(verb: str, workloads: Sequence[EngineWorkload]) -> None:
    """Raise `Refused` if commands go through the front, with the command to use instead."""
    if front_named():
        raise Refused(
            f"the front does not serve `{verb}`: it opens no pods of clusters",
            details=[one.kubectl(verb) for one in workloads],
            next_step=(
                "use your own access to the cluster, with the command above, or run "
                "this without --server where the settings name the secret store"
            ),
        )


async def connection_of(
    objects: FleetObjects, verb: str, workload: EngineWorkload
) -> Connection:
    """Return the connection of the cluster of an engine.

    Raise `Refused` if it has no kubeconfig that this program can use.
    """
    cluster = await objects.describe(
        Target.of(BY_KIND[_CLUSTER], None, workload.cluster)
    )
    existing = at_path(cluster, ".spec.cluster.existing")
    connection = existing_connection(workload.cluster, existing) if existing else None
    if connection is None or connection.identity is not None:
        raise Refused(
            f"{_CLUSTER} {workload.cluster} is opened with an identity of its cloud, "
            "which only workers use",
            details=[workload.kubectl(verb)],
            next_step=_OWN_ACCESS,
        )
    return connection


@contextmanager
def cluster_failures() -> Iterator[None]:
    """Convert errors of a cluster and of the secret store to errors of commands."""
    try:
        yield
    except ClusterUnreachable as error:
        raise Unreachable(
            error.message,
            next_step="check that this machine can reach the API server of the cluster",
        ) from error
    except PermissionDenied as error:
        raise Forbidden(
            error.message,
            next_step="use a kubeconfig of your own with kubectl, or grant the permission",
        ) from error
    except ActionRequiredError as error:
        raise CommandFailed(
            error.message,
            next_step=(
                "run this where the settings name the fleet's secret store (`secrets`), "
                "or use your own kubeconfig of the cluster with kubectl"
            ),
        ) from error
    except ModelplaneError as error:
        raise CommandFailed(
            error.message, next_step="`modelplane describe mr/NAME` shows its pods"
        ) from error
