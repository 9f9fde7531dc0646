"""What must hold before anything is installed on a cluster (spec 2.6 S0, 3.4)."""

from collections.abc import Awaitable, Callable

from activities.clients.helm.port import HelmPort
from activities.cluster_objects import kinds
from activities.cluster_objects.access_review import is_administrator
from activities.cluster_objects.cluster_api import ClusterApi, Json, ObjectId
from activities.heartbeat import Progress
from activities.render.stack import objects
from activities.render.stack.values import releases
from activities.stack.ownership import RELEASE_CONFLICT, check_mark, is_marked, object_conflict
from activities.stack.record import UntestedVersions, stack_record
from activities.stack.releases import conflicts_of, revisions_of
from api_types import labels
from api_types.digests import short_hash
from api_types.errors import InvalidInput, NameConflict, PermissionDenied, Unsupported
from api_types.messages.cluster_work import Connection
from api_types.messages.stack import PreflightStack, StackPlan
from api_types.resources.serving_stack import ServingStackSpec
from api_types.settings import StackSettings

SAME_CLUSTER = "SameAsControlCluster"
_KUBE_SYSTEM = ObjectId(kinds.NAMESPACE, "", "kube-system")
_SHOWN_MAX = 5
# Of what others have named.
_NAME_MAX = 253

ControlCluster = Callable[[], Awaitable[ClusterApi | None]]


def make_plan(source: str, connection: Connection, settings: StackSettings) -> StackPlan:
    """Make the plan for a stack with the settings of this worker. Raises InvalidInput for versions that do not go together."""
    try:
        spec = stack_record(source, (connection.name, connection.key), settings)
    except UntestedVersions as error:
        raise InvalidInput(str(error)) from None
    found = releases(spec)
    document = spec.model_dump(mode="json", by_alias=True, exclude_none=True)
    digest = short_hash([document, {key: release.wire() for key, release in found.items()}])
    return StackPlan(digest=digest, spec=document, releases=found)


async def check(cluster: ClusterApi, helm: HelmPort, order: PreflightStack, plan: StackPlan, report: Callable[[Progress], None]) -> None:
    """Check that a stack can be installed. Raises PermissionDenied or NameConflict with what is in the way."""
    if not await is_administrator(cluster):
        raise PermissionDenied(
            "the user of the kubeconfig may not do everything, which charts need that create roles: bind it to cluster-admin, or annotate "
            f"the cluster {labels.STACK}: external and install the stack yourself"
        )
    name, uid = order.connection.cluster, order.cluster_uid
    mark = await check_mark(cluster, name, uid)
    problems = await _foreign_releases(cluster, order, plan, ours=is_marked(mark, uid))
    problems += await _foreign_objects(cluster, name, uid, plan)
    for key, release in plan.releases.items():
        report({"checked": key})
        if release.name not in order.installed:
            problems += await conflicts_of(cluster, helm, release)
    if problems:
        more = f" and {len(problems) - _SHOWN_MAX} more" if len(problems) > _SHOWN_MAX else ""
        advice = f"remove it, or annotate the cluster {labels.STACK}: external"
        raise NameConflict(f"{'; '.join(problems[:_SHOWN_MAX])}{more}: {advice}", RELEASE_CONFLICT)


async def check_other_cluster(cluster: ClusterApi, control: ControlCluster) -> None:
    """Check that it is not the control cluster: both roles install definitions of one API from different channels (spec 0.2).

    Raises Unsupported.
    """
    other = await control()
    if other is None:
        return
    here, there = await cluster.get(_KUBE_SYSTEM), await other.get(_KUBE_SYSTEM)
    if here and there and here["metadata"]["uid"] == there["metadata"]["uid"]:
        raise Unsupported(f"{SAME_CLUSTER}: the kubeconfig is that of the control cluster; inference needs another cluster", SAME_CLUSTER)


async def _foreign_releases(cluster: ClusterApi, order: PreflightStack, plan: StackPlan, *, ours: bool) -> list[str]:
    """Name releases with our names that are not ours: elsewhere, or there although the cluster has no stack of ours."""
    names = {release.name: release.namespace for release in plan.releases.values()}
    problems = []
    for namespace, name in sorted(await revisions_of(cluster, names)):
        if namespace != names.get(name):
            problems.append(f"release {namespace}/{name} has the name of a release of the stack")
        elif not ours and name not in order.installed:
            problems.append(f"release {namespace}/{name} was not installed for this InferenceCluster")
    return problems


async def _foreign_objects(cluster: ClusterApi, name: str, uid: str, plan: StackPlan) -> list[str]:
    """Name a GatewayClass or a Gateway of others under our names (case 31)."""
    spec = ServingStackSpec.model_validate(plan.spec)
    targets = (
        ObjectId(kinds.GATEWAY_CLASS, "", objects.class_name(spec)),
        ObjectId(kinds.GATEWAY, labels.SYSTEM_NAMESPACE, labels.GATEWAY_NAME),
    )
    found = [await cluster.get(target) for target in targets]
    return [problem for item in found if item and (problem := _object_problem(item, name, uid))]


def _object_problem(item: Json, name: str, uid: str) -> str:
    if not object_conflict(item, name, uid):
        return ""
    kind, metadata = item["kind"], item["metadata"]
    where = f"{metadata['namespace']}/{metadata['name']}" if metadata.get("namespace") else metadata["name"]
    controller = f" (controller {str(item['spec'].get('controllerName'))[:_NAME_MAX]})" if kind == kinds.GATEWAY_CLASS.kind else ""
    return f"{kind} {where} belongs to others{controller}"
