"""Invalid input is reported on the object, with the next step, and nothing is half-created."""

import uuid

import pytest

from activities.secrets.store import SecretStore, StoredSecret
from tests.workflows.environment.harness import ControlPlane, Json, a_deployment, condition, free_port, message, reason

pytestmark = pytest.mark.testbed


def a_cluster(name: str, secret: str, class_name: str = "none-such") -> Json:
    return {
        "apiVersion": "modelplane.ai/v1alpha1",
        "kind": "InferenceCluster",
        "metadata": {"name": name, "labels": {"test": "bad-input"}},
        "spec": {
            "cluster": {"source": "Existing", "existing": {"secretRef": {"name": secret}}},
            "nodePools": [{"name": "pool", "className": class_name}],
        },
    }


def a_class(name: str) -> Json:
    device = {"name": "gpu", "driver": "gpu.nvidia.com", "deviceClassName": "gpu.nvidia.com", "count": 1}
    return {"apiVersion": "modelplane.ai/v1alpha1", "kind": "InferenceClass", "metadata": {"name": name}, "spec": {"devices": [device]}}


async def clean_up(plane: ControlPlane, kind: str, name: str, namespace: str = "") -> None:
    await plane.delete(kind, name, namespace)
    await plane.gone(kind, name, namespace)


@pytest.fixture
def name() -> str:
    return f"bad-{uuid.uuid4().hex[:8]}"


async def test_stk_46_47_a_cluster_waits_for_a_class_that_does_not_exist_and_keeps_it_while_it_is_in_use(
    plane: ControlPlane, name: str
) -> None:
    await plane.apply(a_cluster(name, "no-secret", class_name=name))
    waiting = await plane.until("InferenceCluster", name, lambda seen: reason(seen, "ClusterReady") == "WaitingForClasses")
    assert message(waiting, "ClusterReady") == f"InferenceClass {name} does not exist; apply it"
    await plane.apply(a_class(name))
    await plane.until("InferenceCluster", name, lambda seen: reason(seen, "ClusterReady") != "WaitingForClasses")
    await plane.delete("InferenceClass", name)
    held = await plane.until("InferenceClass", name, lambda seen: reason(seen, "Deleting") == "InUse")
    assert name in message(held, "Deleting")
    await clean_up(plane, "InferenceCluster", name)
    await plane.gone("InferenceClass", name)


async def test_a_cluster_without_its_secret_says_which_one_is_missing(plane: ControlPlane, name: str) -> None:
    await plane.apply(a_class(name))
    await plane.apply(a_cluster(name, "never-stored", class_name=name))
    seen = await plane.until("InferenceCluster", name, lambda seen: reason(seen, "ClusterReady") == "CredentialsInvalid")
    assert "modelplane-system/never-stored" in message(seen, "ClusterReady")
    assert "modelplane apply" in message(seen, "ClusterReady")
    await clean_up(plane, "InferenceCluster", name)
    await clean_up(plane, "InferenceClass", name)


async def test_a_kubeconfig_that_would_run_a_command_is_refused(plane: ControlPlane, name: str, store: SecretStore) -> None:
    text = f"""
apiVersion: v1
kind: Config
current-context: x
contexts: [{{name: x, context: {{cluster: x, user: x}}}}]
clusters: [{{name: x, cluster: {{server: "https://127.0.0.1:{free_port()}"}}}}]
users: [{{name: x, user: {{exec: {{apiVersion: client.authentication.k8s.io/v1, command: /bin/sh}}}}}}]
"""
    await store.put(StoredSecret("modelplane-system", name, {"kubeconfig": text.encode()}))
    await plane.apply(a_class(name))
    await plane.apply(a_cluster(name, name, class_name=name))
    seen = await plane.until("InferenceCluster", name, lambda seen: reason(seen, "ClusterReady") == "CredentialsInvalid")
    assert "exec" in message(seen, "ClusterReady")
    await clean_up(plane, "InferenceCluster", name)
    await clean_up(plane, "InferenceClass", name)


async def test_a_bad_spec_by_bare_signal_is_reported_on_the_object_and_a_good_one_replaces_it(plane: ControlPlane, name: str) -> None:
    broken = a_deployment(name, "bad-input")
    broken["spec"]["replicas"] = -1
    await plane.apply(broken)
    seen = await plane.until("ModelDeployment", name, lambda seen: reason(seen, "SpecAccepted") == "InvalidInput", "bad-input")
    assert "spec.replicas: must be between 0 and 1000, got -1" in message(seen, "SpecAccepted")
    assert condition(seen, "Ready") == "False"
    await plane.apply(a_deployment(name, "bad-input", gpus=64))
    fixed = await plane.until("ModelDeployment", name, lambda seen: condition(seen, "SpecAccepted") == "True", "bad-input")
    assert fixed["metadata"]["generation"] == 1
    await clean_up(plane, "ModelDeployment", name, "bad-input")


async def test_a_selector_that_does_not_compile_leaves_running_replicas_alone(plane: ControlPlane, name: str) -> None:
    document = a_deployment(name, name)
    await plane.apply(document)
    before = await plane.ready("ModelDeployment", name, name)
    member = document["spec"]["template"]["spec"]["engines"][0]["members"][0]
    member["nodeSelector"]["devices"][0]["selectors"] = [{"cel": "device.isGreterThan("}]
    await plane.apply(document)
    seen = await plane.until("ModelDeployment", name, lambda seen: reason(seen, "ReplicasScheduled") == "InvalidNodeSelector", name)
    assert [p["replica"] for p in seen["status"]["placements"]] == [p["replica"] for p in before["status"]["placements"]]
    assert seen["status"]["replicas"]["ready"] == 1
    await clean_up(plane, "ModelDeployment", name, name)


async def test_malformed_messages_are_reported_and_change_nothing(plane: ControlPlane, name: str) -> None:
    await plane.apply(a_deployment(name, "bad-input", gpus=64))
    handle = plane.handle("ModelDeployment", name, "bad-input")
    for signal, payload in [("scale", {"replicas": "many"}), ("scale", 7), ("placed", "nonsense"), ("set_spec", ["no"]), ("delete", "x")]:
        await handle.signal(signal, payload)
    seen = await plane.until(
        "ModelDeployment",
        name,
        lambda seen: {"ScaleRefused", "MalformedMessage"} <= {event["reason"] for event in seen["status"]["events"]},
        "bad-input",
    )
    assert seen["spec"]["replicas"] == 1
    assert "deletionTimestamp" not in seen["metadata"]
    await clean_up(plane, "ModelDeployment", name, "bad-input")
