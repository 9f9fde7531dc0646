"""Check permissions, quotas and names at Google Cloud before anything costs money.

A check that lacks a permission becomes a warning.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from activities.clouds.desired.plan import (
    CHECK_SKIPPED,
    INVALID_INPUT,
    MISSING_PERMISSION,
    QUOTA,
    PlanProblem,
)
from activities.clouds.desired.pools import CloudPool
from activities.clouds.gke.api import GoogleApi
from activities.clouds.gke.rights import CALLS, permissions_of
from activities.clouds.gke.versions import is_offered
from activities.clouds.gke.wanted.cluster import nodes_of
from activities.clouds.gke.wanted.inputs import GkeInputs
from api_types.errors import PermissionDenied
from api_types.resources.inference_class import GkeNodes

# Without these permissions no cluster can be created or deleted. Without others, single
# objects or leftovers wait, or a check is left out.
_NEEDED = (
    "compute.networks.",
    "compute.subnetworks.",
    "container.",
    "iam.serviceAccounts.actAs",
)
# Clusters whose nodes have an account of the user do without these.
_OF_ACCOUNTS = {
    "iam.serviceAccounts.create",
    "iam.serviceAccounts.delete",
    "resourcemanager.projects.setIamPolicy",
}
# A request tests at most so many permissions.
_PERMISSIONS_MAX = 100
_ALL_GPUS = "GPUS_ALL_REGIONS"
# The quota metric of a GPU family is its type without maker and memory. These are the
# exceptions.
_METRICS = {"nvidia-a100-80gb": "NVIDIA_A100_80GB_GPUS"}
_CHANNEL = "REGULAR"


@dataclass(frozen=True)
class Checked:
    refused: tuple[PlanProblem, ...] = ()
    warnings: tuple[PlanProblem, ...] = ()


def permissions(api: GoogleApi, project: str, *, account: bool) -> list[PlanProblem]:
    """Return warnings for missing permissions, including deletion permissions.

    `account` is True if the nodes get an account of their own, with a role.

    Raises PermissionDenied if no cluster can be created, operated or deleted without a
    missing permission.
    """
    used = {each for name in CALLS for each in permissions_of(name)}
    wanted = sorted(used if account else used - _OF_ACCOUNTS)
    held: set[str] = set()
    try:
        for start in range(0, len(wanted), _PERMISSIONS_MAX):
            part = wanted[start : start + _PERMISSIONS_MAX]
            request = {"resource": f"projects/{project}", "permissions": part}
            answer = api.read(
                "resourcemanager.projects", "test_iam_permissions", request
            )
            held.update(answer.permissions)
    except PermissionDenied as error:
        return [
            PlanProblem(
                CHECK_SKIPPED, "", f"permissions cannot be checked: {error.message}"
            )
        ]
    missing = [each for each in wanted if each not in held]
    if any(each.startswith(_NEEDED) for each in missing):
        raise PermissionDenied(
            f"the credential lacks {', '.join(missing)} in project {project}; grant it "
            f"{_roles_with(missing)}"
        )
    return [
        PlanProblem(
            MISSING_PERMISSION,
            "",
            f"the credential lacks {each} in project {project}; grant it "
            f"{_roles_with([each])}",
        )
        for each in missing
    ]


def _roles_with(missing: Sequence[str]) -> str:
    """Return the files of the custom roles with these permissions."""
    named = [
        f"deploy/clouds/gcp/{name}.yaml"
        for name in CALLS
        if not set(missing).isdisjoint(permissions_of(name))
    ]
    return f"the custom roles of {' and '.join(named)}"


def check(
    api: GoogleApi,
    inputs: GkeInputs,
    pools: Sequence[CloudPool[GkeNodes]],
    *,
    cluster: bool,
) -> Checked:
    """Check the new pools, and with `cluster` also the version of the control plane."""
    refused: list[PlanProblem] = []
    warnings: list[PlanProblem] = []

    def run(what: str, find: Callable[[], Iterator[PlanProblem]]) -> None:
        try:
            found = list(find())
        except PermissionDenied as error:
            warnings.append(
                PlanProblem(
                    CHECK_SKIPPED, "", f"{what} cannot be checked: {error.message}"
                )
            )
        else:
            refused.extend(each for each in found if each.reason == INVALID_INPUT)
            warnings.extend(each for each in found if each.reason != INVALID_INPUT)

    if cluster or pools:
        run("zones and quotas of the region", lambda: _region(api, inputs, pools))
    if any(not problem.at for problem in refused):
        # The region does not exist, so nothing else can be checked.
        return Checked(tuple(refused), tuple(warnings))
    if cluster:
        run("the Kubernetes version", lambda: _version(api, inputs))
    elsewhere = {problem.at for problem in refused}
    if placed := [pool for pool in pools if pool.title not in elsewhere]:
        run("machine types", lambda: _machines(api, inputs, placed))
        run("the GPUs of machine types", lambda: _gpus(api, inputs, placed))
    if any(_start(inputs, pool) for pool in pools):
        run(f"quota {_ALL_GPUS}", lambda: _all_gpus(api, inputs, pools))
    return Checked(tuple(refused), tuple(warnings))


def _version(api: GoogleApi, inputs: GkeInputs) -> Iterator[PlanProblem]:
    config = api.read("container", "get_server_config", {"name": inputs.location})
    channel = next(
        (each for each in config.channels if each.channel.name == _CHANNEL), None
    )
    offered = list(channel.valid_versions) if channel is not None else []
    wanted = inputs.gke.kubernetes_version
    if offered and not is_offered(wanted, offered):
        where = f"channel {_CHANNEL} of {inputs.gke.region}"
        text = f'kubernetesVersion "{wanted}" is not offered in {where}'
        offers = f"offered are {', '.join(offered[:8])}"
        yield PlanProblem(INVALID_INPUT, "", f"{text}; {offers}")


def _region(
    api: GoogleApi, inputs: GkeInputs, pools: Sequence[CloudPool[GkeNodes]]
) -> Iterator[PlanProblem]:
    name = inputs.gke.region
    region = api.find(
        "compute.regions", "get", {"project": inputs.project, "region": name}
    )
    if region is None:
        yield PlanProblem(
            INVALID_INPUT,
            "",
            f'region "{name}" does not exist for project {inputs.project}',
        )
        return
    zones = sorted(url.rpartition("/")[2] for url in region.zones)
    for pool in pools:
        for zone in pool.pool.zones or ():
            if zones and zone not in zones:
                yield PlanProblem(
                    INVALID_INPUT,
                    pool.title,
                    f'zone "{zone}" does not exist; the zones of {name} are '
                    f"{', '.join(zones)}",
                )
    yield from _quotas(region.quotas, _needs(inputs, pools))


def _machines(
    api: GoogleApi, inputs: GkeInputs, pools: Sequence[CloudPool[GkeNodes]]
) -> Iterator[PlanProblem]:
    for pool in pools:
        named = pool.pool.zones or ()
        missing = {zone: _missing(api, inputs, pool, zone) for zone in named}
        if not any(missing.values()):
            continue
        others = [zone for zone in _zones(api, inputs) if zone not in named]
        usable = [zone for zone in others if not _missing(api, inputs, pool, zone)]
        where = (
            f"zones {', '.join(usable)} offer it" if usable else "no other zone does"
        )
        for zone, what in missing.items():
            if what:
                text = f"{what} is not offered in zone {zone}; {where}"
                yield PlanProblem(INVALID_INPUT, pool.title, text)


def _gpus(
    api: GoogleApi, inputs: GkeInputs, pools: Sequence[CloudPool[GkeNodes]]
) -> Iterator[PlanProblem]:
    """Reject a number of GPUs that the machine does not have.

    GPUs are part of most machine types. Machines of the family N1 have as many as
    requested, up to a maximum.
    """
    for pool in pools:
        wanted, machine = pool.nodes.accelerator, pool.nodes.machine_type
        where = {"project": inputs.project, "zone": (pool.pool.zones or ("",))[0]}
        found = api.find(
            "compute.machine_types", "get", where | {"machine_type": machine}
        )
        built_in = {
            each.guest_accelerator_type: each.guest_accelerator_count
            for each in (found.accelerators if found else ())
        }
        has = built_in.get(wanted.type)
        if built_in and has != wanted.count:
            gpus = ", ".join(f"{count} {kind}" for kind, count in built_in.items())
            text = (
                f"machine type {machine} has {gpus}, and the class says {wanted.count} "
                f"{wanted.type}; correct accelerator or machineType in the class"
            )
            yield PlanProblem(INVALID_INPUT, pool.title, text)


def _missing(
    api: GoogleApi, inputs: GkeInputs, pool: CloudPool[GkeNodes], zone: str
) -> str:
    """Return the part of a pool's machines that a zone does not offer, or ""."""
    where = {"project": inputs.project, "zone": zone}
    machine, gpu = pool.nodes.machine_type, pool.nodes.accelerator.type
    if (
        api.find("compute.machine_types", "get", where | {"machine_type": machine})
        is None
    ):
        return f"machine type {machine}"
    found = api.find(
        "compute.accelerator_types", "get", where | {"accelerator_type": gpu}
    )
    return "" if found is not None else f"accelerator {gpu}"


def _zones(api: GoogleApi, inputs: GkeInputs) -> list[str]:
    request = {"project": inputs.project, "region": inputs.gke.region}
    region = api.find("compute.regions", "get", request)
    return sorted(url.rpartition("/")[2] for url in region.zones) if region else []


def _all_gpus(
    api: GoogleApi, inputs: GkeInputs, pools: Sequence[CloudPool[GkeNodes]]
) -> Iterator[PlanProblem]:
    project = api.read("compute.projects", "get", {"project": inputs.project})
    yield from _quotas(
        project.quotas, {_ALL_GPUS: (sum(_start(inputs, pool) for pool in pools), "")}
    )


def _quotas(
    quotas: Sequence[Any], needs: Mapping[str, tuple[int, str]]
) -> Iterator[PlanProblem]:
    """Warn of a quota that is too small.

    The cloud itself rejects such a pool, and the other pools are created meanwhile.
    """
    by_metric = {str(each.metric): each for each in quotas}
    for metric, (need, at) in needs.items():
        quota = by_metric.get(metric)
        if quota is not None and need > quota.limit - quota.usage:
            free = int(max(0, quota.limit - quota.usage))
            yield PlanProblem(
                QUOTA,
                at,
                f"{metric} needs {need}, has {free} of {int(quota.limit)}; request more in "
                "the quotas of the project",
            )


def _needs(
    inputs: GkeInputs, pools: Sequence[CloudPool[GkeNodes]]
) -> dict[str, tuple[int, str]]:
    """Return the initial GPUs of the pools by metric, and the pool if it is only one."""
    needs: dict[str, tuple[int, str]] = {}
    for pool in pools:
        metric, start = metric_of(pool.nodes.accelerator.type), _start(inputs, pool)
        if start:
            needs[metric] = (
                (start + needs[metric][0], "")
                if metric in needs
                else (start, pool.title)
            )
    return needs


def _start(inputs: GkeInputs, pool: CloudPool[GkeNodes]) -> int:
    return nodes_of(inputs, pool)[0] * pool.nodes.accelerator.count


def metric_of(accelerator: str) -> str:
    """Return the quota metric of a GPU type, such as `NVIDIA_L4_GPUS` for `nvidia-l4`."""
    if accelerator in _METRICS:
        return _METRICS[accelerator]
    maker, _, rest = accelerator.partition("-")
    parts = [
        part for part in rest.split("-") if part != "tesla" and not part.endswith("gb")
    ]
    return "_".join([maker, *parts, "gpus"]).upper()
