"""Compare the maintenance policy of a cluster with the desired one.

Other users may stop upgrades with exclusions, which stay unchanged.
"""

from collections.abc import Mapping
from typing import Any

from google.cloud import container_v1

from activities.clouds.gke.wanted.maintenance import OUR_EXCLUSION
from api_types.clock import utc_now


def is_other_policy(desired: Mapping[str, Any], found: Any) -> bool:
    """Return True if the window or an exclusion of the manifest differs.

    Exclusions that have ended do not count, because GKE drops them.
    """
    wanted, observed = _policy(desired).window, found.maintenance_policy.window
    return bool(
        wanted.recurring_window != observed.recurring_window
        or _ours(wanted) != _ours(observed)
    )


def merged(desired: Mapping[str, Any], found: Any) -> Any:
    """Return the desired policy with the exclusions of other users.

    It has the version of the observed policy, so GKE rejects it if another user changes
    the policy meanwhile.
    """
    policy, observed = _policy(desired), found.maintenance_policy
    exclusions = {
        name: each
        for name, each in observed.window.maintenance_exclusions.items()
        if not name.startswith(OUR_EXCLUSION)
    }
    policy.window.maintenance_exclusions = exclusions | _ours(policy.window)
    policy.resource_version = observed.resource_version
    return policy


def _policy(desired: Mapping[str, Any]) -> container_v1.MaintenancePolicy:
    return container_v1.MaintenancePolicy(desired)


def _ours(window: Any) -> dict[str, Any]:
    """Return our exclusions that have not ended."""
    return {
        name: each
        for name, each in window.maintenance_exclusions.items()
        if name.startswith(OUR_EXCLUSION) and each.end_time > utc_now()
    }
