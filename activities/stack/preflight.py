"""Check that a stack can be installed on a cluster, before anything is installed."""

from collections.abc import Awaitable, Callable

from activities.clients.helm.port import HelmPort
from activities.cluster_objects import kinds
from activities.cluster_objects.access_review import is_administrator
from activities.cluster_objects.cluster_api import ClusterApi, Json, ObjectId
from activities.heartbeat import Progress
from activities.render.stack import objects
from activities.render.stack.values import releases
from activities.stack.existing import find_existing
from activities.stack.ownership import (
    RELEASE_CONFLICT,
    check_mark,
    is_marked,
    object_conflict,
)
from activities.stack.record import UntestedVersions, stack_record
from activities.stack.releases import conflicts_of, revisions_of
from api_types import labels
from api_types.digests import short_hash
from api_types.errors import InvalidInput, NameConflict, PermissionDenied, Unsupported
from api_types.messages.cluster_work import Connection
from api_types.messages.stack import PreflightStack, StackPlan
from api_types.resources.serving_stack import ServingStackSpec
from api_types.sections.stacks import StackSettings

SAME_CLUSTER = "SameAsControlCluster"
_KUBE_SYSTEM = ObjectId(kinds.NAMESPACE, "", "kube-system")
_SHOWN_MAX = 5
# Other users choose these names.
_NAME_MAX = 253

ControlCluster = Callable[[], Awaitable[ClusterApi | None]]


def make_plan(
    source: str, connection: Connection, settings: StackSettings
) -> StackPlan:
    """Plan a stack from this worker's settings.

    Raises InvalidInput for versions that do not work together.
    """
    try:
        spec = stack_record(source, (connection.name, connection.key), settings)
    except UntestedVersions as error:
        raise InvalidInput(str(error)) from None
    found = releases(spec)
    document = spec.model_dump(mode="json", by_alias=True, exclude_none=True)
    digest = short_hash(
        [document, {key: release.wire() for key, release in found.items()}]
    )
    return StackPlan(digest=digest, spec=document, releases=found)


async def check(
    cluster: ClusterApi,
    helm: HelmPort,
    order: PreflightStack,
    plan: StackPlan,
    report: Callable[[Progress], None],
) -> StackPlan:
    """Return the plan without the components that others installed.

    Raises PermissionDenied or NameConflict if something prevents an installation.
    """
    if not await is_administrator(cluster):
        raise PermissionDenied(
            "the user of the kubeconfig is not an administrator, and charts that create "
            "roles need one: bind the user to cluster-admin, or annotate the cluster "
            f"{labels.STACK}: external and install the stack yourself"
        )
    name, uid = order.connection.cluster, order.cluster_uid
    mark = await check_mark(cluster, name, uid)
    found = is_marked(mark, uid)
    problems = await _foreign_releases(cluster, order, plan, ours=found)
    problems += await _foreign_objects(cluster, name, uid, plan)
    existing = await find_existing(cluster, order, plan)
    problems += existing.problems
    for key, release in plan.releases.items():
        report({"checked": key})
        if release.name not in order.installed and key not in existing.adopted:
            problems += await conflicts_of(cluster, helm, release)
    if problems:
        more = (
            f" and {len(problems) - _SHOWN_MAX} more"
            if len(problems) > _SHOWN_MAX
            else ""
        )
        advice = f"remove it, or annotate the cluster {labels.STACK}: external"
        raise NameConflict(
            f"{'; '.join(problems[:_SHOWN_MAX])}{more}: {advice}", RELEASE_CONFLICT
        )
    return plan.model_copy(
        update={
            "kept": existing.adopted,
            "adopted": list(existing.adopted),
            "left": existing.left,
            "found": found,
        }
    )


async def check_other_cluster(cluster: ClusterApi, control: ControlCluster) -> None:
    """Raise Unsupported if the cluster is the control cluster.

    Both roles install definitions of one API, from different channels.
    """
    other = await control()
    if other is None:
        return
    here, there = await cluster.get(_KUBE_SYSTEM), await other.get(_KUBE_SYSTEM)
    if here and there and here["metadata"]["uid"] == there["metadata"]["uid"]:
        raise Unsupported(
            f"{SAME_CLUSTER}: the kubeconfig leads to the control cluster; use another "
            "cluster for inference",
            SAME_CLUSTER,
        )


async def _foreign_releases(
    cluster: ClusterApi, order: PreflightStack, plan: StackPlan, *, ours: bool
) -> list[str]:
    """Return a problem for each foreign release with a name of a planned release.

    A release is foreign if it is in another namespace, or if Modelplane has no stack on
    the cluster.
    """
    names = {release.name: release.namespace for release in plan.releases.values()}
    problems = []
    for namespace, name in sorted(await revisions_of(cluster, names)):
        if namespace != names.get(name):
            problems.append(
                f"release {namespace}/{name} has the name of a release of the stack"
            )
        elif not ours and name not in order.installed:
            problems.append(
                f"release {namespace}/{name} was not installed for this InferenceCluster"
            )
    return problems


async def _foreign_objects(
    cluster: ClusterApi, name: str, uid: str, plan: StackPlan
) -> list[str]:
    """Return a problem if another owner's GatewayClass or Gateway has the planned name."""
    spec = ServingStackSpec.model_validate(plan.spec)
    targets = (
        ObjectId(kinds.GATEWAY_CLASS, "", objects.class_name(spec)),
        ObjectId(kinds.GATEWAY, labels.SYSTEM_NAMESPACE, labels.GATEWAY_NAME),
    )
    found = [await cluster.get(target) for target in targets]
    problems = [_object_problem(item, name, uid) for item in found if item]
    return [problem for problem in problems if problem]


def _object_problem(item: Json, name: str, uid: str) -> str:
    if not object_conflict(item, name, uid):
        return ""
    kind, metadata = item["kind"], item["metadata"]
    where = (
        f"{metadata['namespace']}/{metadata['name']}"
        if metadata.get("namespace")
        else metadata["name"]
    )
    controller = (
        f" (controller {str(item['spec'].get('controllerName'))[:_NAME_MAX]})"
        if kind == kinds.GATEWAY_CLASS.kind
        else ""
    )
    return f"{kind} {where} belongs to others{controller}"
