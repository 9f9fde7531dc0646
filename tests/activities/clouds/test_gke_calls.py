"""The arguments of calls to Google Cloud are messages of its clients.

The types of GKE itself parse them. The types of Compute Engine, IAM and other services
are not installed, so the names of their fields are compared with a list.
"""

from collections.abc import Mapping
from typing import Any

import pytest
from google.cloud import container_v1

from tests.activities.clouds.builders import a_pool, filled, gke, object_of

MADE = gke(
    a_pool("fixed"),
    a_pool(
        "scaled",
        nodeCount=0,
        minNodeCount=0,
        maxNodeCount=4,
        zones=["europe-west4-a", "europe-west4-b"],
    ),
)
REQUESTS = {
    "create_cluster": container_v1.CreateClusterRequest,
    "create_node_pool": container_v1.CreateNodePoolRequest,
}
CONTAINER = [
    (each.key, call)
    for each in MADE.objects
    for call in each.calls
    if call.service == "container"
]

# The set fields of every message, by path.
FIELDS = {
    "net/vpc": {
        "project",
        "request_id",
        "network_resource.name",
        "network_resource.auto_create_subnetworks",
        "network_resource.description",
    },
    "net/subnet": {
        "project",
        "region",
        "request_id",
        "subnetwork_resource.name",
        "subnetwork_resource.network",
        "subnetwork_resource.region",
        "subnetwork_resource.ip_cidr_range",
        "subnetwork_resource.secondary_ip_ranges.range_name",
        "subnetwork_resource.secondary_ip_ranges.ip_cidr_range",
        "subnetwork_resource.description",
    },
    "api/file": {"name"},
    "iam/sa": {
        "name",
        "account_id",
        "service_account.display_name",
        "service_account.description",
    },
    "iam/binding": {"resource", "policy.bindings.role", "policy.bindings.members"},
}


@pytest.mark.parametrize(("key", "call"), CONTAINER, ids=[key for key, _ in CONTAINER])
def test_requests_to_gke_parse_without_loss(key: str, call: Any) -> None:
    kind = REQUESTS[call.operation]
    request = kind(filled(call))
    sent = kind.to_dict(
        request,
        use_integers_for_enums=False,
        always_print_fields_with_no_presence=False,
    )
    assert without_defaults(sent) == without_defaults(filled(call)), key


def test_a_field_that_gke_does_not_have_would_be_found() -> None:
    ((_, call), *_) = CONTAINER
    with pytest.raises(ValueError, match="Unknown field"):
        container_v1.CreateClusterRequest(
            filled(call) | {"cluster": {"network_name": "x"}}
        )


@pytest.mark.parametrize("key", sorted(FIELDS))
def test_fields_of_other_services_match_the_listed_ones(key: str) -> None:
    (call,) = object_of(MADE, key).calls
    assert paths(filled(call)) == FIELDS[key]


def without_defaults(value: Any) -> Any:
    """Remove false, 0 and empty values at any depth, which protobuf does not store.

    Numbers become text, because protobuf's JSON has large ones as text.
    """
    if isinstance(value, Mapping):
        return {
            key: kept
            for key, item in value.items()
            if (kept := without_defaults(item)) not in ({}, [], "", "0", False, None)
        }
    if isinstance(value, list | tuple):
        return [without_defaults(item) for item in value]
    return (
        str(value) if isinstance(value, int) and not isinstance(value, bool) else value
    )


def paths(value: Any, at: str = "") -> set[str]:
    """Yield the path of every leaf. Items of a list have the path of the list."""
    if isinstance(value, Mapping):
        return {
            path
            for key, item in value.items()
            for path in paths(item, f"{at}.{key}" if at else key)
        }
    if isinstance(value, list) and value and isinstance(value[0], Mapping):
        return {path for item in value for path in paths(item, at)}
    return {at}
