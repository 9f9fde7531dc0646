"""Find the releases that cannot be downgraded, because definitions would change.

A definition cannot be downgraded safely: objects may be stored in a version, or with
fields, that only the newer one has. If a definition is only in the templates of the
newer chart, Helm would delete it together with its objects.
"""

from collections.abc import Callable

from activities.clients.helm.port import HelmPort
from activities.cluster_objects.cluster_api import ClusterApi, Selection
from activities.cluster_objects.kinds import CRD
from activities.heartbeat import Progress
from activities.render.stack import components
from activities.stack.definitions import differences
from activities.stack.releases import as_chart, as_release, release_of
from api_types.messages.stack import HelmRelease, PreflightStack, StackPlan
from api_types.payloads.limits import shortened
from api_types.pins import charts

REJECTED = "Rejected"
# Versions of these components work together only in pairs, so they are kept together
# too.
_TOGETHER = (components.AI_GATEWAY_CRDS.key, *components.PAIR)
_NAMED_MAX = 3
_NAMED_BYTES_MAX = 300
# Other users may have written any text into a release.
_VERSION_MAX = 100


async def without_downgrades(
    cluster: ClusterApi,
    helm: HelmPort,
    order: PreflightStack,
    plan: StackPlan,
    report: Callable[[Progress], None],
) -> StackPlan:
    """Return the plan without downgrades that change definitions.

    `kept` has the reasons.
    """
    versions, kept = dict[str, str](), dict[str, str]()
    for key, release in plan.releases.items():
        found = (
            await helm.status(release.name, release.namespace)
            if release.name in order.installed
            else None
        )
        if found is None:
            continue
        versions[key] = found.chart_version[:_VERSION_MAX]
        if charts.is_older(release.version, found.chart_version):
            named = await _other_definitions(cluster, helm, release)
            if named:
                kept[key] = _refusal(key, release.version, versions[key], named)
        report({"checked": key})
    if refused := next((key for key in _TOGETHER if key in kept), ""):
        others = [key for key in _TOGETHER if key in versions and key not in kept]
        kept |= {
            key: f"{key} stays at {versions[key]}, because it must match {refused}"
            for key in others
        }
    stay = {
        key: plan.releases[key].model_copy(update={"version": versions[key]})
        for key in kept
    }
    return plan.model_copy(
        update={
            "releases": {**plan.releases, **stay},
            "kept": {**plan.kept, **kept},
        }
    )


async def _other_definitions(
    cluster: ClusterApi, helm: HelmPort, release: HelmRelease
) -> list[str]:
    """Return the definitions that a downgrade to a chart would change or remove."""
    in_templates = [
        item
        for item in await helm.render(as_release(release))
        if item.get("kind") == CRD.kind
    ]
    wanted = {item["metadata"]["name"] for item in in_templates}
    listed = await cluster.list(Selection(CRD, metadata_only=True))
    of_release = [
        item["metadata"]["name"]
        for item in listed.items
        if release_of(item) == (release.namespace, release.name)
    ]
    removed = [name for name in of_release if name not in wanted]
    return [
        *await differences(
            cluster, [*await helm.crds(as_chart(release)), *in_templates]
        ),
        *removed,
    ]


def _refusal(key: str, wanted: str, installed: str, definitions: list[str]) -> str:
    more = len(definitions) - _NAMED_MAX
    named = shortened(", ".join(definitions[:_NAMED_MAX]), _NAMED_BYTES_MAX) + (
        f" and {more} more" if more > 0 else ""
    )
    installed_pin = components.BY_KEY[key].pin
    settings = [name for name, pin in charts.CHANGEABLE.items() if pin == installed_pin]
    advice = (
        f"set stack.versions.{settings[0]} to {installed} or a newer version"
        if settings
        else f"run workers whose release has {installed}"
    )
    return (
        f"{REJECTED}: {key} stays at {installed}: {wanted} is older and has other "
        f"definitions ({named}), which cannot be downgraded; {advice}"
    )
