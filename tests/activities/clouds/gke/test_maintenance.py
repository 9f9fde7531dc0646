"""Upgrades of a GKE cluster: their window, their exclusions, and their machines."""

from datetime import UTC, datetime
from typing import Any

from google.cloud import container_v1

from fakes.gcp.fake import FakeGoogle
from tests.activities.clouds.builders import a_pool
from tests.activities.clouds.gke.cloud import (
    Cloud,
    a_cloud,
    changes,
    cluster_of,
    pool_of,
    run,
)

EVENT: dict[str, Any] = {
    "name": "launch",
    "start": "2099-12-01T00:00:00Z",
    "end": "2099-12-15T00:00:00Z",
}
PAST = {**EVENT, "start": "2020-12-01T00:00:00Z", "end": "2020-12-15T00:00:00Z"}


def exclusions(cloud: Cloud) -> list[str]:
    return sorted(cluster_of(cloud).maintenance_policy.window.maintenance_exclusions)


def exclude(cloud: Cloud, name: str) -> None:
    """Add an exclusion as a person does in the console."""
    at = datetime(2099, 1, 1, tzinfo=UTC)
    window = container_v1.TimeWindow(start_time=at, end_time=at.replace(month=2))
    policy = cluster_of(cloud).maintenance_policy
    policy.window.maintenance_exclusions[name] = window


def test_an_exclusion_of_the_manifest_is_added_and_removed(ready: Cloud) -> None:
    cluster = ready.object("cluster")
    ready.block["maintenance"] = {"exclusions": [EVENT]}
    run(ready.ensure(ready.object("cluster")))
    assert exclusions(ready) == ["modelplane-launch"]
    ready.block["maintenance"] = {}
    run(ready.ensure(ready.object("cluster")))
    assert (exclusions(ready), ready.object("cluster").name) == ([], cluster.name)
    assert changes(ready) == ["container.set_maintenance_policy"] * 2


def test_an_exclusion_of_other_users_stays(ready: Cloud) -> None:
    exclude(ready, "freeze")
    assert str(ready.looked("cluster").state) == "Ready"
    ready.block["maintenance"] = {"exclusions": [EVENT]}
    run(ready.ensure(ready.object("cluster")))
    assert exclusions(ready) == ["freeze", "modelplane-launch"]


def test_an_exclusion_that_has_ended_is_no_difference(ready: Cloud) -> None:
    ready.block["maintenance"] = {"exclusions": [PAST]}
    run(ready.ensure(ready.object("cluster")))
    assert changes(ready) == []


def test_another_window_is_set(ready: Cloud) -> None:
    ready.block["maintenance"] = {"window": {"startTime": "22:00", "hours": 4}}
    run(ready.ensure(ready.object("cluster")))
    window = cluster_of(ready).maintenance_policy.window.recurring_window
    assert (window.recurrence, window.window.start_time.hour) == ("FREQ=DAILY", 22)


def test_a_pool_that_needs_a_spare_machine_for_upgrades_is_changed(
    ready: Cloud,
) -> None:
    settings = pool_of(ready).upgrade_settings
    settings.max_surge, settings.max_unavailable = 1, 0
    run(ready.ensure(ready.object("pool/gpu")))
    settings = pool_of(ready).upgrade_settings
    assert (settings.max_surge, settings.max_unavailable) == (0, 1)
    assert changes(ready) == ["container.update_node_pool"]


def test_the_account_of_existing_nodes_cannot_change(google: FakeGoogle) -> None:
    cloud = a_cloud(google, a_pool())
    run(cloud.create_all())
    account = pool_of(cloud).config.service_account
    cloud.block["nodeServiceAccount"] = "other@acme.iam.gserviceaccount.com"
    planned = cloud.plan()
    assert (planned.objects, [each.text for each in planned.refused]) == (
        (),
        [
            (
                f"the nodes of the cluster have the service account {account}, which cannot "
                "be changed to other@acme.iam.gserviceaccount.com; create another cluster "
                "with it"
            )
        ],
    )
