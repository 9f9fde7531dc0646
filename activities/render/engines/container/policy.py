"""What the platform grants to engine pods on the nodes of a class: `podPolicy` of the InferenceClass of a member's pool.

It comes with the facts of the cluster, and never from the spec of a replica, so that no tenant can write it. A tenant's own variable of
the same name wins: a variable is no right.
"""

from typing import Any

from pydantic import ValidationError

from activities.render.engines.context import Context
from activities.render.engines.spec import Member
from activities.render.objects import contract
from activities.render.objects.manifest import Json, compact
from api_types.resources.parts.pod_policy import ComputeAmounts, PodPolicy, SeccompProfile
from api_types.text.quantity import parse_quantity

_NOTHING = PodPolicy()


def policy_of(context: Context, member: Member) -> PodPolicy:
    """Give what the class of a member's pool grants; nothing for a class without a policy."""
    given = context.facts.pod_policies.get(member.pool)
    if not given:
        return _NOTHING
    try:
        return PodPolicy.model_validate(given)
    except ValidationError as error:
        found = "; ".join(f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors(include_input=False, include_url=False))
        context.findings.problem(f"pool {member.pool}", f"podPolicy of its InferenceClass cannot be read: {found}; apply the class again")
        return _NOTHING


def variables(policy: PodPolicy) -> list[dict[str, Any]]:
    """Give the variables of a policy."""
    return [{"name": variable.name, "value": variable.value} for variable in policy.env or ()]


def resources(policy: PodPolicy, by_setting: Json, plugins: Json) -> Json:
    """Give requests and limits: those of the policy before those of the setting, and the devices that the engine claims before both.

    The setting is for all classes, so a lower limit of one lowers its request: a container with more than its limit is refused.
    """
    own = policy.resources
    requests, limits = (_amounts(own.requests), _amounts(own.limits)) if own else ({}, {})
    counted = {
        **{f"hugepages-{pages.size}": pages.amount for pages in policy.hugepages or ()},
        **{device.resource_name: str(device.count) for device in policy.rdma or ()},
        **plugins,
    }
    return compact(requests={**_within(by_setting, limits), **requests, **counted}, limits={**limits, **counted})


def huge_page_volumes(policy: PodPolicy) -> tuple[list[Json], list[Json]]:
    """Give the volumes of huge pages, and their mounts."""
    named = [(f"hugepages-{pages.size.lower()}", pages.size) for pages in policy.hugepages or ()]
    volumes = [{"name": name, "emptyDir": {"medium": f"HugePages-{size}"}} for name, size in named]
    return volumes, [{"name": name, "mountPath": f"/dev/hugepages-{size}"} for name, size in named]


def shared_memory(policy: PodPolicy, by_setting: str) -> Json:
    """Give the volume of /dev/shm."""
    return {"name": contract.SHM_VOLUME, "emptyDir": compact(medium="Memory", sizeLimit=policy.shm_size or by_setting or None)}


def tolerations(policy: PodPolicy, of_devices: list[Json]) -> list[Json]:
    """Give the tolerations of a pod: those that every pod with such devices has, and those of the policy."""
    own = [
        compact(key=each.key, operator=each.operator, value=each.value if each.operator == "Equal" else None, effect=each.effect)
        for each in policy.tolerations or ()
    ]
    return [*of_devices, *(each for each in own if each not in of_devices)]


def seccomp_profile(policy: PodPolicy) -> Json:
    """Give the seccomp profile of a pod."""
    profile = policy.seccomp or SeccompProfile()
    return compact(type=profile.type, localhostProfile=profile.localhost_profile)


def container_security(policy: PodPolicy) -> Json | None:
    """Give the security context of the engine; None without capabilities."""
    return {"capabilities": {"add": list(policy.capabilities)}} if policy.capabilities else None


def _within(by_setting: Json, limits: Json) -> Json:
    return {name: limits[name] if name in limits and _is_more(amount, limits[name]) else amount for name, amount in by_setting.items()}


def _is_more(amount: str, limit: str) -> bool:
    try:
        return parse_quantity(amount) > parse_quantity(limit)
    except ValueError:  # of a class that was stored unchecked, which the API server answers
        return False


def _amounts(amounts: ComputeAmounts | None) -> Json:
    return amounts.wire() if amounts else {}
