"""What is asked of Google Cloud before anything costs money (spec/provisioning.md 3.6). A check that may not run is a warning."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from activities.clouds.desired import CHECK_SKIPPED, INVALID_INPUT, MISSING_PERMISSION, QUOTA, Problem
from activities.clouds.gke.api import GoogleApi
from activities.clouds.gke.versions import is_offered
from activities.clouds.gke.wanted.cluster import nodes_of
from activities.clouds.gke.wanted.inputs import GkeInputs
from activities.clouds.pools import CloudPool
from api_types.errors import PermissionDenied
from api_types.resources.inference_class import GkeNodes

# Without these there is no cluster.
_NEEDED = (
    "compute.networks.create",
    "compute.networks.delete",
    "compute.subnetworks.create",
    "compute.subnetworks.delete",
    "container.clusters.create",
    "container.clusters.delete",
    "container.clusters.get",
    "container.clusters.update",
    "container.operations.list",
)
# Without these some objects of it are not created, or what it leaves is not found.
_WISHED = (
    "iam.serviceAccounts.create",
    "iam.serviceAccounts.delete",
    "resourcemanager.projects.getIamPolicy",
    "resourcemanager.projects.setIamPolicy",
    "serviceusage.services.enable",
)
_ALL_GPUS = "GPUS_ALL_REGIONS"
# The metric of a family is its type without maker and memory, but for these.
_METRICS = {"nvidia-a100-80gb": "NVIDIA_A100_80GB_GPUS"}
_CHANNEL = "REGULAR"


@dataclass(frozen=True)
class Checked:
    """What the checks found."""

    refused: tuple[Problem, ...] = ()
    warnings: tuple[Problem, ...] = ()


def permissions(api: GoogleApi, project: str) -> list[Problem]:
    """Give warnings for what the credential may not do. Raises PermissionDenied where no cluster can be created without it."""
    request = {"resource": f"projects/{project}", "permissions": [*_NEEDED, *_WISHED]}
    try:
        held = set(api.read("resourcemanager.projects", "test_iam_permissions", request).permissions)
    except PermissionDenied as error:
        return [Problem(CHECK_SKIPPED, "", f"permissions cannot be checked: {error.message}")]
    if missing := [each for each in _NEEDED if each not in held]:
        raise PermissionDenied(f"the credential lacks {', '.join(missing)} in project {project}; give it a role that has them")
    return [Problem(MISSING_PERMISSION, "", f"the credential lacks {each} in project {project}") for each in _WISHED if each not in held]


def check(api: GoogleApi, inputs: GkeInputs, pools: Sequence[CloudPool[GkeNodes]], *, cluster: bool) -> Checked:
    """Check these pools, which are not there yet; with `cluster` the version of the control plane too."""
    refused: list[Problem] = []
    warnings: list[Problem] = []

    def run(what: str, find: Callable[[], Iterator[Problem]]) -> None:
        try:
            found = list(find())
        except PermissionDenied as error:
            warnings.append(Problem(CHECK_SKIPPED, "", f"{what} cannot be checked: {error.message}"))
        else:
            refused.extend(each for each in found if each.reason == INVALID_INPUT)
            warnings.extend(each for each in found if each.reason != INVALID_INPUT)

    if cluster or pools:
        run("zones and quotas of the region", lambda: _region(api, inputs, pools))
    if any(not problem.at for problem in refused):
        # There is no such region, so nothing else of it can be asked.
        return Checked(tuple(refused), tuple(warnings))
    if cluster:
        run("the Kubernetes version", lambda: _version(api, inputs))
    elsewhere = {problem.at for problem in refused}
    if placed := [pool for pool in pools if pool.title not in elsewhere]:
        run("machine types", lambda: _machines(api, inputs, placed))
    if any(_start(inputs, pool) for pool in pools):
        run(f"quota {_ALL_GPUS}", lambda: _all_gpus(api, inputs, pools))
    return Checked(tuple(refused), tuple(warnings))


def _version(api: GoogleApi, inputs: GkeInputs) -> Iterator[Problem]:
    config = api.read("container", "get_server_config", {"name": inputs.location})
    channel = next((each for each in config.channels if each.channel.name == _CHANNEL), None)
    offered = list(channel.valid_versions) if channel is not None else []
    wanted = inputs.gke.kubernetes_version
    if offered and not is_offered(wanted, offered):
        where = f"channel {_CHANNEL} of {inputs.gke.region}"
        text = f'kubernetesVersion "{wanted}" is not offered in {where}; offered are {", ".join(offered[:8])}'
        yield Problem(INVALID_INPUT, "", text)


def _region(api: GoogleApi, inputs: GkeInputs, pools: Sequence[CloudPool[GkeNodes]]) -> Iterator[Problem]:
    name = inputs.gke.region
    region = api.find("compute.regions", "get", {"project": inputs.project, "region": name})
    if region is None:
        yield Problem(INVALID_INPUT, "", f'region "{name}" does not exist for project {inputs.project}')
        return
    zones = sorted(url.rpartition("/")[2] for url in region.zones)
    for pool in pools:
        for zone in pool.pool.zones or ():
            if zones and zone not in zones:
                yield Problem(INVALID_INPUT, pool.title, f'zone "{zone}" does not exist; zones of {name} are {", ".join(zones)}')
    yield from _quotas(region.quotas, _needs(inputs, pools))


def _machines(api: GoogleApi, inputs: GkeInputs, pools: Sequence[CloudPool[GkeNodes]]) -> Iterator[Problem]:
    for pool in pools:
        machine = pool.nodes.machine_type
        for zone in pool.pool.zones or ():
            request = {"project": inputs.project, "zone": zone, "machine_type": machine}
            if api.find("compute.machine_types", "get", request) is None:
                yield Problem(INVALID_INPUT, pool.title, f"machine type {machine} is not offered in zone {zone}")


def _all_gpus(api: GoogleApi, inputs: GkeInputs, pools: Sequence[CloudPool[GkeNodes]]) -> Iterator[Problem]:
    project = api.read("compute.projects", "get", {"project": inputs.project})
    yield from _quotas(project.quotas, {_ALL_GPUS: (sum(_start(inputs, pool) for pool in pools), "")})


def _quotas(quotas: Sequence[Any], needs: Mapping[str, tuple[int, str]]) -> Iterator[Problem]:
    """Warn of a quota that is too small; the cloud refuses it in the end, and the other pools are built meanwhile."""
    by_metric = {str(each.metric): each for each in quotas}
    for metric, (need, at) in needs.items():
        quota = by_metric.get(metric)
        if quota is not None and need > quota.limit - quota.usage:
            free = int(max(0, quota.limit - quota.usage))
            yield Problem(QUOTA, at, f"{metric} needs {need}, has {free} of {int(quota.limit)}; ask for more in the quotas of the project")


def _needs(inputs: GkeInputs, pools: Sequence[CloudPool[GkeNodes]]) -> dict[str, tuple[int, str]]:
    """Give the GPUs that the pools start with by metric, and the pool if it is one."""
    needs: dict[str, tuple[int, str]] = {}
    for pool in pools:
        metric, start = metric_of(pool.nodes.accelerator.type), _start(inputs, pool)
        if start:
            needs[metric] = (start + needs[metric][0], "") if metric in needs else (start, pool.title)
    return needs


def _start(inputs: GkeInputs, pool: CloudPool[GkeNodes]) -> int:
    return nodes_of(inputs, pool)[0] * pool.nodes.accelerator.count


def metric_of(accelerator: str) -> str:
    """Give the quota of a type of GPU: `NVIDIA_L4_GPUS` of `nvidia-l4`, `NVIDIA_H100_GPUS` of `nvidia-h100-80gb`."""
    if accelerator in _METRICS:
        return _METRICS[accelerator]
    maker, _, rest = accelerator.partition("-")
    parts = [part for part in rest.split("-") if part != "tesla" and not part.endswith("gb")]
    return "_".join([maker, *parts, "gpus"]).upper()
