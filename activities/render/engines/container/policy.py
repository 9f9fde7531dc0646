"""The `podPolicy` of an InferenceClass: what the platform grants to pods of its nodes.

The policy is part of the facts of the cluster, and never of the spec of a replica, so
that no tenant can write it. If a tenant sets a variable of the same name, the tenant's
value is used, because a variable grants no permission.
"""

from typing import Any

from pydantic import ValidationError

from activities.render.engines.context import Context
from activities.render.engines.spec import MemberSpec
from activities.render.objects import contract
from activities.render.objects.manifest import Json, compact
from api_types.resources.parts.pod_policy import (
    ComputeAmounts,
    ComputeResources,
    PodPolicy,
    SeccompProfile,
)
from api_types.text.quantity import parse_quantity, times

_NOTHING = PodPolicy()


def policy_of(context: Context, member: MemberSpec) -> PodPolicy:
    """Return the policy of the class of a member's pool, or an empty policy."""
    given = context.facts.pod_policies.get(member.pool)
    if not given:
        return _NOTHING
    try:
        return PodPolicy.model_validate(given)
    except ValidationError as error:
        found = "; ".join(
            f"{'.'.join(map(str, one['loc']))}: {one['msg']}"
            for one in error.errors(include_input=False, include_url=False)
        )
        context.findings.problem(
            f"pool {member.pool}",
            f"podPolicy of its InferenceClass cannot be read: {found}; apply the class again",
        )
        return _NOTHING


def variables(policy: PodPolicy) -> list[dict[str, Any]]:
    return [
        {"name": variable.name, "value": variable.value}
        for variable in policy.env or ()
    ]


def resources(
    policy: PodPolicy, member: MemberSpec, by_setting: Json, plugins: Json
) -> Json:
    """Return requests and limits.

    The amounts of the policy are per device that the pod claims.

    Devices that the engine claims override the policy, and the policy overrides the
    setting. The setting applies to all classes. If the limit of a class is lower than
    the request in the setting, the request is lowered too, because Kubernetes rejects a
    container that requests more than its limit.
    """
    own = policy.resources
    requests, limits = (
        (
            _amounts(own.requests, _devices(own, member)),
            _amounts(own.limits, _devices(own, member)),
        )
        if own
        else ({}, {})
    )
    counted = {
        **{f"hugepages-{pages.size}": pages.amount for pages in policy.hugepages or ()},
        **{device.resource_name: str(device.count) for device in policy.rdma or ()},
        **plugins,
    }
    return compact(
        requests={**_within(by_setting, limits), **requests, **counted},
        limits={**limits, **counted},
    )


def huge_page_volumes(policy: PodPolicy) -> tuple[list[Json], list[Json]]:
    """Return the volumes of huge pages, and their mounts."""
    named = [
        (f"hugepages-{pages.size.lower()}", pages.size)
        for pages in policy.hugepages or ()
    ]
    volumes = [
        {"name": name, "emptyDir": {"medium": f"HugePages-{size}"}}
        for name, size in named
    ]
    return volumes, [
        {"name": name, "mountPath": f"/dev/hugepages-{size}"} for name, size in named
    ]


def shared_memory(policy: PodPolicy, by_setting: str) -> Json:
    """Return the volume of /dev/shm."""
    return {
        "name": contract.SHM_VOLUME,
        "emptyDir": compact(
            medium="Memory", sizeLimit=policy.shm_size or by_setting or None
        ),
    }


def tolerations(policy: PodPolicy, of_devices: list[Json]) -> list[Json]:
    """Return the tolerations for the devices and those of the policy."""
    own = [
        compact(
            key=each.key,
            operator=each.operator,
            value=each.value if each.operator == "Equal" else None,
            effect=each.effect,
        )
        for each in policy.tolerations or ()
    ]
    return [*of_devices, *(each for each in own if each not in of_devices)]


def seccomp_profile(policy: PodPolicy) -> Json:
    profile = policy.seccomp or SeccompProfile()
    return compact(type=profile.type, localhostProfile=profile.localhost_profile)


def container_security(policy: PodPolicy) -> Json | None:
    """Return the security context of the engine; None without capabilities."""
    return (
        {"capabilities": {"add": list(policy.capabilities)}}
        if policy.capabilities
        else None
    )


def _within(by_setting: Json, limits: Json) -> Json:
    return {
        name: limits[name]
        if name in limits and _is_more(amount, limits[name])
        else amount
        for name, amount in by_setting.items()
    }


def _is_more(amount: str, limit: str) -> bool:
    try:
        return parse_quantity(amount) > parse_quantity(limit)
    except ValueError:
        # The class was stored without admission. The API server reports the invalid
        # quantity.
        return False


def _devices(resources: ComputeResources, member: MemberSpec) -> int:
    """Return the devices of a pod that count, at least 1."""
    counted = sum(
        request.count
        for request in member.requests
        if (request.device_class or request.resource_name) == (resources.device or "")
    )
    return max(1, counted)


def _amounts(amounts: ComputeAmounts | None, devices: int) -> Json:
    given = amounts.wire() if amounts else {}
    return {name: _times(amount, devices) for name, amount in given.items()}


def _times(amount: str, devices: int) -> str:
    try:
        return times(amount, devices)
    except ValueError:
        # The class was stored without admission. The API server reports the invalid
        # quantity.
        return amount
