"""The state of the fake: ledger, leftovers, reset."""

import json
import threading

import grpc
import pytest
from google.api_core import exceptions

from fakes.gcp.calls.faults import TooManyRequests
from fakes.gcp.clients import Clients, credentials, token_of
from fakes.gcp.fake import FakeGoogle
from tests.fakes.gcp.objects import a_pool

pytestmark = pytest.mark.slow


def test_the_ledger_has_each_call_with_its_request_and_outcome(
    google: FakeGoogle, clients: Clients, parent: str
) -> None:
    with pytest.raises(exceptions.NotFound):
        clients.container.delete_node_pool(name=f"{parent}/clusters/c/nodePools/p")
    (call,) = google.ledger().calls()
    assert (
        call.name,
        call.target,
        dict(call.request),
        call.outcome,
        call.took_effect,
    ) == (
        "container.delete_node_pool",
        f"{parent}/clusters/c/nodePools/p",
        {"name": f"{parent}/clusters/c/nodePools/p"},
        "NOT_FOUND",
        False,
    )


def test_the_ledger_gives_creations_and_deletions_in_order(
    google: FakeGoogle, clients: Clients, parent: str, cluster: str
) -> None:
    clients.container.create_node_pool(parent=cluster, node_pool=a_pool())
    google.finish()
    clients.container.delete_node_pool(name=f"{cluster}/nodePools/gpu-l4")
    google.finish()
    clients.container.delete_cluster(name=cluster)
    assert google.ledger().creations() == [
        f"{parent}/clusters/prod",
        f"{cluster}/nodePools/gpu-l4",
    ]
    assert google.ledger().deletions() == [f"{cluster}/nodePools/gpu-l4", cluster]
    assert [
        call.method
        for call in google.ledger().calls(
            "container.delete_*", "*/nodePools/*", effective=True
        )
    ] == ["delete_node_pool"]


def test_no_key_and_no_token_gets_into_the_ledger(google: FakeGoogle) -> None:
    with Clients(google.grpc_target, google.credential) as clients:
        request = {"name": f"projects/{google.project}", "account_id": "mp-0a1b2c3d"}
        account = clients.iam.create_service_account(request=request)
        key = json.loads(
            clients.iam.create_service_account_key(name=account.name).private_key_data
        )
    text = repr(google.ledger().calls())
    assert "mp-0a1b2c3d" in text
    for secret in (
        *google.tokens(),
        key["private_key"][40:80],
        json.loads(google.credential)["private_key"][40:80],
    ):
        assert secret not in text


def test_a_reset_empties_everything_but_the_credential(
    google: FakeGoogle, clients: Clients, cluster: str
) -> None:
    google.fault(TooManyRequests(times=100))
    google.capacity.set_limit("NETWORKS", 0)
    google.plant_member("roles/viewer", "user:a@example.com")
    held = credentials(google.credential)
    token = token_of(held)
    assert cluster in google.remains()
    google.reset()
    assert (google.remains(), google.ledger().calls(), google.faults_left()) == (
        [],
        [],
        [],
    )
    assert google.capacity.limit("NETWORKS") > 0
    assert google.account_of(token) == google.email
    clients.projects.get_iam_policy(resource=f"projects/{google.project}")


def test_a_binding_remains(google: FakeGoogle) -> None:
    google.plant_member("roles/viewer", "user:a@example.com")
    assert google.remains() == [
        f"projects/{google.project}/policy/roles/viewer/user:a@example.com"
    ]


def test_neither_the_default_network_nor_its_deletion_is_a_leftover(
    google: FakeGoogle,
) -> None:
    google.remove(f"projects/{google.project}/global/networks/default")
    assert google.remains() == []


def test_two_fakes_do_not_answer_for_each_other(google: FakeGoogle) -> None:
    with FakeGoogle("other-project") as other:
        google.plant_member("roles/viewer", "user:a@example.com")
        assert (other.grpc_target != google.grpc_target, other.remains()) == (True, [])


def test_the_servers_end(google: FakeGoogle) -> None:
    assert google
    before = threading.active_count()
    with (
        FakeGoogle("short-project") as other,
        Clients(other.grpc_target, other.credential) as clients,
    ):
        clients.projects.get_iam_policy(resource="projects/short-project")
        target = other.grpc_target
    channel = grpc.insecure_channel(target)
    with pytest.raises(grpc.FutureTimeoutError):
        grpc.channel_ready_future(channel).result(timeout=0.3)
    channel.close()
    assert threading.active_count() <= before + 1
