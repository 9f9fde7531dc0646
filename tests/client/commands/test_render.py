"""`modelplane render`: the objects that would be applied, from files alone."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.client.conftest import Cli
from tests.client.fleetfiles import (
    API,
    Tree,
    a_class,
    a_cluster,
    a_deployment,
    a_file,
    a_replica,
)

SITE: Tree = {
    "metadata": {
        "labels": {"site": "eu"},
        "name": "eu",
        "annotations": {"modelplane.ai/routing": "service"},
    }
}


def a_cache(name: str = "weights", **spec: Any) -> Tree:
    source = {
        "source": "HuggingFace",
        "huggingFace": {
            "repo": "a/b",
            "authSecret": {"name": "token", "key": "token"},
            "sizeGiB": 10,
        },
    }
    return {
        "apiVersion": API,
        "kind": "ModelCache",
        "metadata": {"name": name, "namespace": "ml"},
        "spec": {**source, **spec},
    }


def rendered(
    cli: Cli, folder: Path, *trees: Tree, facts: str = ""
) -> tuple[list[Any], str]:
    """Render trees. Return the objects and the warnings."""
    words = ["render", "-f", a_file(folder, *trees), "-o", "json"]
    if facts:
        file = folder / "facts.yaml"
        file.write_text(facts)
        words += ["--cluster-facts", str(file)]
    result = cli(*words)
    assert result.code == 0, result.err
    items: list[Any] = json.loads(result.out)["items"]
    return items, result.err


EXAMPLES = Path(__file__).parents[3] / "examples"

pytestmark = pytest.mark.usefixtures("nowhere")


def test_a_deployment_is_rendered_for_the_cluster_of_its_placement(
    cli: Cli, tmp_path: Path
) -> None:
    """Objects are in the order of application, with uid zeros and generation 1.

    The annotations of the cluster are facts.
    """
    objects, _ = rendered(
        cli, tmp_path, a_class(), a_cluster("eu", **SITE), a_deployment(replicas=1)
    )
    assert [one["kind"] for one in objects] == [
        "ResourceClaimTemplate",
        "Deployment",
        "Service",
        "HTTPRoute",
        "HTTPRoute",
        "PodMonitor",
    ]
    owners = [one["metadata"]["annotations"] for one in objects]
    assert {owner["modelplane.ai/owner-uid"] for owner in owners} == {
        "00000000-0000-0000-0000-000000000000"
    }
    assert {owner["modelplane.ai/generation"] for owner in owners} == {"1"}
    assert objects[1]["spec"]["template"]["spec"]["nodeSelector"] == {
        "modelplane.ai/pool": "h200"
    }


def test_a_replica_needs_only_facts(cli: Cli, tmp_path: Path) -> None:
    objects, _ = rendered(
        cli,
        tmp_path,
        a_replica("chat-1", "oslo"),
        facts="clusters: {oslo: {draVersion: v1beta2}}",
    )
    assert objects[0]["apiVersion"] == "resource.k8s.io/v1beta2"
    assert "InferencePool" in [one["kind"] for one in objects]


def test_facts_in_the_file_override_single_facts_of_the_cluster(
    cli: Cli, tmp_path: Path
) -> None:
    trees = [
        a_class(),
        a_cluster("eu", storage="fast", **SITE),
        a_deployment(replicas=1),
        a_cache(),
    ]
    objects, _ = rendered(
        cli, tmp_path, *trees, facts="clusters: {eu: {routing: pool}}"
    )
    assert "InferencePool" in [one["kind"] for one in objects]
    (volume,) = (one for one in objects if one["kind"] == "PersistentVolumeClaim")
    assert volume["spec"]["storageClassName"] == "fast"
    # A fact without a value hides nothing.
    assert rendered(cli, tmp_path, *trees, facts="clusters: {eu: {}}") == rendered(
        cli, tmp_path, *trees
    )


def test_a_cluster_that_cannot_stage_a_cache_is_not_matched(
    cli: Cli, tmp_path: Path
) -> None:
    objects, warned = rendered(
        cli, tmp_path, a_cluster("eu", storage="fast"), a_cluster("us"), a_cache()
    )
    assert [one["kind"] for one in objects] == [
        "Secret",
        "PersistentVolumeClaim",
        "Job",
    ]
    assert (
        "ModelCache ml/weights: not matched: cluster us reports no storage class for caches"
        in warned
    )


def amd(**fields: str) -> tuple[Tree, Tree]:
    """A class whose devices are claimed under another name than their driver's, and a
    deployment that needs them.
    """
    declared, wanted = a_class(), a_deployment(replicas=1)
    declared["spec"]["devices"][0] |= {
        "driver": "gpu.amd.com",
        "deviceClassName": "mi300x",
        **fields,
    }
    wanted["spec"]["template"]["spec"]["engines"][0]["members"][0]["nodeSelector"][
        "devices"
    ][0]["selectors"] = [{"cel": 'device.driver == "gpu.amd.com"'}]
    return declared, wanted


def tolerated(objects: list[Any]) -> set[str]:
    pods = [
        one["spec"]["template"]["spec"]
        for one in objects
        if one["kind"] == "Deployment"
    ]
    return {each["key"] for pod in pods for each in pod.get("tolerations", ())}


def test_the_drivers_behind_the_device_classes_of_a_cluster_are_known(
    cli: Cli, tmp_path: Path
) -> None:
    assert "amd.com/gpu" in tolerated(
        rendered(cli, tmp_path, *amd(), a_cluster("eu", **SITE))[0]
    )
    published = a_cluster("eu", **SITE)
    published["status"] = {
        "gpuPools": [
            {
                "name": "h200",
                "nodes": 2,
                "devices": [{**amd()[0]["spec"]["devices"][0], "claim": "DRA"}],
            }
        ]
    }
    assert "amd.com/gpu" in tolerated(
        rendered(cli, tmp_path, *amd(driver="other.example"), published)[0]
    )
    replica = a_replica("chat-1", "oslo")
    replica["spec"]["engines"][0]["members"][0]["deviceRequests"][0][
        "deviceClassName"
    ] = "mi300x"
    facts = "clusters: {oslo: {routing: service, drivers: {mi300x: gpu.amd.com}}}"
    assert "amd.com/gpu" in tolerated(rendered(cli, tmp_path, replica, facts=facts)[0])


ASSUMED = "cluster 'assumed' is assumed, with one pool that has all requested devices"


def test_a_deployment_alone_is_rendered_for_a_cluster_that_is_assumed_and_both_outputs_say_so(
    cli: Cli, tmp_path: Path
) -> None:
    deployment = a_deployment(
        replicas=2, clusterSelector={"matchLabels": {"site": "eu"}}
    )
    result = cli("render", "-f", a_file(tmp_path, deployment))
    assert result.code == 0, result.err
    assert result.out.startswith(
        "# no InferenceCluster and no InferenceClass is given: "
    )
    assert ASSUMED in result.out.splitlines()[0]
    assert (
        f"warning: no InferenceCluster and no InferenceClass is given: {ASSUMED}"
        in result.err
    )
    assert result.out.count("\nkind: InferencePool\n") == 2
    assert " on cluster assumed\n" in result.out


def test_the_assumed_cluster_matches_the_selectors(cli: Cli, tmp_path: Path) -> None:
    """The assumed cluster has any requested hardware, and a missing cache counts as
    staged.
    """
    objects, warned = rendered(cli, tmp_path, amd()[1])
    (template,) = (one for one in objects if one["kind"] == "ResourceClaimTemplate")
    (request,) = template["spec"]["spec"]["devices"]["requests"]
    assert request["exactly"]["deviceClassName"] == "gpu.amd.com"
    assert request["exactly"]["selectors"] == [
        {"cel": {"expression": 'device.driver == "gpu.amd.com"'}}
    ]
    assert "amd.com/gpu" in tolerated(objects)
    assert ASSUMED in warned
    objects, warned = rendered(
        cli,
        tmp_path,
        a_deployment(replicas=1, memory="999Gi", modelCacheRef={"name": "weights"}),
    )
    (pod,) = (
        one["spec"]["template"]["spec"]
        for one in objects
        if one["kind"] == "Deployment" and "resourceClaims" in str(one)
    )
    assert [volume for volume in pod["volumes"] if "persistentVolumeClaim" in volume]
    assert "left out" not in warned


STAGED = (
    "engines are rendered as they are once the caches among the objects are staged: "
)


def claims_of(objects: list[Any]) -> set[str]:
    """Return the volume claims that engines mount."""
    pods = [
        one["spec"]["template"]["spec"]
        for one in objects
        if one["kind"] == "Deployment"
    ]
    return {
        volume["persistentVolumeClaim"]["claimName"]
        for pod in pods
        for volume in pod["volumes"]
        if "persistentVolumeClaim" in volume
    }


def test_a_cache_in_the_files_is_staged_on_the_assumed_cluster(
    cli: Cli, tmp_path: Path
) -> None:
    objects, warned = rendered(
        cli,
        tmp_path,
        a_deployment(replicas=1, modelCacheRef={"name": "weights"}),
        a_cache(),
    )
    assert [one["kind"] for one in objects][:3] == [
        "Secret",
        "PersistentVolumeClaim",
        "Job",
    ]
    assert claims_of(objects) == {objects[1]["metadata"]["name"]}
    assert f"{STAGED}ml/weights\n" in warned
    assert "left out" not in warned


def test_caches_of_adapters_in_the_files_are_staged_too_in_both_outputs(
    cli: Cli,
) -> None:
    file = str(EXAMPLES / "models" / "adapters.yaml")
    names = "research/llama-8b, research/sales-lora, research/support-lora"
    shown = cli("render", "-f", file)
    assert shown.out.splitlines()[1] == f"# {STAGED}{names}"
    assert f"warning: {STAGED}{names}\n" in shown.err
    assert "left out" not in shown.err
    objects = json.loads(cli("render", "-f", file, "-o", "json").out)["items"]
    volumes = {
        one["metadata"]["name"]
        for one in objects
        if one["kind"] == "PersistentVolumeClaim"
    }
    assert len(volumes) == 3
    assert claims_of(objects) == volumes


@pytest.mark.parametrize(
    "file", sorted((EXAMPLES / "caches").glob("*.yaml")), ids=lambda file: file.stem
)
def test_every_example_of_a_cache_is_rendered_alone(cli: Cli, file: Path) -> None:
    result = cli("render", "-f", str(file))
    assert result.code == 0, result.err


def test_a_cache_alone_is_rendered_for_a_cluster_that_is_assumed_and_both_outputs_say_so(
    cli: Cli, tmp_path: Path
) -> None:
    said = (
        "no InferenceCluster and no InferenceClass is given: cluster 'assumed' is "
        "assumed, with a storage class for caches\n"
    )
    result = cli(
        "render",
        "-f",
        a_file(tmp_path, a_cache(clusterSelector={"matchLabels": {"site": "eu"}})),
    )
    assert (result.code, result.err) == (0, f"warning: {said}")
    assert result.out.startswith(f"# {said}")
    assert "storageClassName: assumed-rwx" in result.out
    objects, warned = rendered(
        cli, tmp_path, a_cache(), facts="clusters: {oslo: {storageClassName: fast}}"
    )
    assert [one["kind"] for one in objects] == [
        "Secret",
        "PersistentVolumeClaim",
        "Job",
    ]
    assert objects[1]["spec"]["storageClassName"] == "fast"
    assert "cluster 'oslo' is assumed" in warned


def test_a_cache_that_its_cluster_does_not_stage_leaves_the_engines_out(
    cli: Cli, tmp_path: Path
) -> None:
    elsewhere = a_cache(clusterSelector={"matchLabels": {"site": "us"}})
    replica = a_replica("chat-1", "eu")
    replica["spec"]["modelCacheRef"] = {"name": "weights"}
    us = a_cluster(
        "us", storage="fast", metadata={"name": "us", "labels": {"site": "us"}}
    )
    objects, warned = rendered(
        cli, tmp_path, a_cluster("eu", storage="fast", **SITE), us, replica, elsewhere
    )
    assert claims_of(objects) == set()
    assert "workloads are left out: WaitingForCache" in warned
    assert STAGED not in warned


def test_facts_come_from_the_assumed_cluster(cli: Cli, tmp_path: Path) -> None:
    objects, warned = rendered(
        cli,
        tmp_path,
        a_deployment(replicas=1),
        facts="clusters: {oslo: {routing: service}}",
    )
    assert "Service" in [one["kind"] for one in objects]
    assert "InferencePool" not in [one["kind"] for one in objects]
    assert "cluster 'oslo' is assumed" in warned


DEPLOYMENTS = [
    file
    for file in sorted(EXAMPLES.glob("models/*.yaml"))
    if "kind: ModelDeployment" in file.read_text()
]


@pytest.mark.slow
@pytest.mark.parametrize("file", DEPLOYMENTS, ids=lambda file: file.stem)
def test_every_example_of_a_model_is_rendered_alone(cli: Cli, file: Path) -> None:
    result = cli("render", "-f", str(file))
    assert result.code == 0, result.err
    assert ASSUMED in result.out
    assert "ModelReplica" not in result.err, "an example does what its own warnings say"


def test_existing_replicas_are_rendered_once_from_their_manifests(
    cli: Cli, tmp_path: Path
) -> None:
    stands = a_replica("chat-old", "eu")
    objects, _ = rendered(
        cli,
        tmp_path,
        a_class(),
        a_cluster("eu", **SITE),
        stands,
        a_deployment(replicas=1),
    )
    assert {
        one["metadata"]["annotations"]["modelplane.ai/owner-name"] for one in objects
    } == {"chat-old"}
    assert [one["kind"] for one in objects].count("Deployment") == 1


def test_a_replica_with_another_template_is_rendered_once_as_it_would_be_updated(
    cli: Cli, tmp_path: Path
) -> None:
    edited = a_deployment(replicas=1)
    edited["spec"]["template"]["spec"]["engines"][0]["members"][0]["template"]["spec"][
        "containers"
    ][0]["image"] = "example.com/vllm:2"
    objects, _ = rendered(
        cli,
        tmp_path,
        a_class(),
        a_cluster("eu", **SITE),
        a_replica("chat-old", "eu"),
        edited,
    )
    (workload,) = (one for one in objects if one["kind"] == "Deployment")
    assert workload["metadata"]["annotations"]["modelplane.ai/owner-name"] == "chat-old"
    assert (
        workload["spec"]["template"]["spec"]["containers"][0]["image"]
        == "example.com/vllm:2"
    )


def test_a_deployment_that_is_being_deleted_gets_no_new_replicas(
    cli: Cli, tmp_path: Path
) -> None:
    old = a_deployment("former")
    old["metadata"]["deletionTimestamp"] = "2026-03-01T12:00:00Z"
    old["spec"]["template"]["spec"]["engines"][0]["members"][0]["template"]["spec"][
        "containers"
    ][0]["image"] = "example.com/vllm:0"
    trees, _ = rendered(
        cli, tmp_path, a_class(), a_cluster("eu", nodes=4), old, a_deployment()
    )
    assert "chat" in str(trees)
    assert "former" not in str(trees)
    assert "vllm:0" not in str(trees)


def test_replicas_that_would_be_evicted_are_not_rendered(
    cli: Cli, tmp_path: Path
) -> None:
    replicas = [
        a_replica("chat-one", "eu"),
        a_replica("chat-two", "eu", index=1),
        a_replica("other-one", "eu", "other", index=0),
    ]
    objects, _ = rendered(
        cli,
        tmp_path,
        a_class(),
        a_cluster("eu", nodes=3, **SITE),
        *replicas,
        a_deployment(replicas=1),
    )
    assert {
        one["metadata"]["annotations"]["modelplane.ai/owner-name"] for one in objects
    } == {"chat-one", "other-one"}


def test_a_cache_comes_first_and_without_the_data_of_its_secret(
    cli: Cli, tmp_path: Path
) -> None:
    facts = "clusters: {eu: {storageClassName: fast, routing: service}}"
    trees = [
        a_class(),
        a_cluster("eu", storage="fast"),
        a_deployment(replicas=1, modelCacheRef={"name": "weights"}),
        a_cache(),
    ]
    objects, warned = rendered(cli, tmp_path, *trees, facts=facts)
    assert [one["kind"] for one in objects][:3] == [
        "Secret",
        "PersistentVolumeClaim",
        "Job",
    ]
    assert not {"data", "stringData"} & set(objects[0])
    assert claims_of(objects) == {objects[1]["metadata"]["name"]}
    assert f"{STAGED}ml/weights" in warned


def test_a_staged_cache_lets_the_engines_run(cli: Cli, tmp_path: Path) -> None:
    facts = (
        "clusters: {eu: {storageClassName: fast, routing: service, cacheClaims: "
        "{ml/weights: claim-1}}}"
    )
    trees = [
        a_class(),
        a_cluster("eu", storage="fast"),
        a_deployment(replicas=1, modelCacheRef={"name": "weights"}),
        a_cache(),
    ]
    objects, warned = rendered(cli, tmp_path, *trees, facts=facts)
    assert [
        one["kind"] for one in objects if one["kind"] in ("Job", "Secret", "Deployment")
    ] == ["Deployment"]
    assert claims_of(objects) == {"claim-1"}
    assert "left out" not in warned
    assert STAGED not in warned


def test_equal_input_gives_equal_output(cli: Cli, tmp_path: Path) -> None:
    trees = [a_class(), a_cluster("eu"), a_cluster("us"), a_deployment()]
    assert rendered(cli, tmp_path, *trees) == rendered(cli, tmp_path, *trees)


def test_yaml_names_the_owner_of_each_object(cli: Cli, tmp_path: Path) -> None:
    result = cli(
        "render", "-f", a_file(tmp_path, a_replica("chat-1", "eu"), a_cluster("eu"))
    )
    assert result.out.startswith(
        "---\n# ModelReplica ml/chat-1 on cluster eu\napiVersion: "
    )


def test_a_part_without_a_place_is_a_warning(cli: Cli, tmp_path: Path) -> None:
    objects, warned = rendered(
        cli, tmp_path, a_class(), a_cluster("eu", nodes=1), a_deployment(replicas=2)
    )
    assert objects
    assert "ModelDeployment ml/chat: 1 of 2 replicas scheduled" in warned


REFUSED = [
    (
        "a deployment without clusters",
        [a_deployment(), a_class()],
        "add each InferenceCluster with -f",
    ),
    (
        "a deployment without classes",
        [a_deployment(), a_cluster("eu")],
        "add each InferenceClass with -f",
    ),
    (
        "a replica on an unknown cluster",
        [a_replica("chat-1", "oslo")],
        "nothing is known about cluster oslo",
    ),
    (
        "a cache without a cluster",
        [a_cache(), a_class()],
        "no cluster to render it for",
    ),
    ("nothing that can be rendered", [a_class()], "nothing to render"),
    (
        "a deployment that fits nowhere",
        [a_class(), a_cluster("eu"), a_deployment(memory="999Gi")],
        "0/1 clusters are available",
    ),
    (
        "a cache on a cluster that cannot stage it",
        [a_cache(), a_cluster("eu")],
        "reports no storage class for caches",
    ),
]


@pytest.mark.parametrize(
    ("trees", "say"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED]
)
def test_invalid_input_of_rendering_is_rejected(
    cli: Cli, tmp_path: Path, trees: list[Tree], say: str
) -> None:
    result = cli("render", "-f", a_file(tmp_path, *trees))
    assert (result.code, result.out) == (2, "")
    assert say in result.err


def test_every_mistake_in_the_facts_is_reported_at_once(
    cli: Cli, tmp_path: Path
) -> None:
    facts = tmp_path / "facts.yaml"
    facts.write_text(
        "clusters: {eu: {routing: mesh, kubernetesVersion: new, storageclass: x}}"
    )
    result = cli(
        "render",
        "-f",
        a_file(tmp_path, a_replica("chat-1", "eu")),
        "--cluster-facts",
        str(facts),
    )
    assert result.code == 2
    for say in (
        "routing is 'mesh'",
        "kubernetesVersion is 'new'",
        "storageclass is unknown",
    ):
        assert say in result.err


def test_pods_have_the_grants_of_their_pools_class(cli: Cli, tmp_path: Path) -> None:
    granting = a_class()
    granting["spec"]["podPolicy"] = {"capabilities": ["IPC_LOCK"], "shmSize": "64Gi"}
    objects, _ = rendered(
        cli, tmp_path, granting, a_cluster("eu", **SITE), a_deployment(replicas=1)
    )
    engine = objects[1]["spec"]["template"]["spec"]["containers"][0]
    assert engine["securityContext"] == {"capabilities": {"add": ["IPC_LOCK"]}}


def test_the_size_of_a_cache_among_the_files_decides_how_long_its_engine_may_load(
    cli: Cli, tmp_path: Path
) -> None:
    """A member with probes and no time:

    600 s, and 6 s for each GiB of a volume of 850, counted as 1024.
    """
    deployment = a_deployment(replicas=1, modelCacheRef={"name": "weights"})
    deployment["spec"]["template"]["spec"]["engines"][0]["members"][0]["probes"] = {}
    cache = a_cache()
    cache["spec"]["huggingFace"]["sizeGiB"] = 850
    facts = (
        "clusters: {eu: {storageClassName: shared, cacheClaims: {ml/weights: claim}}}"
    )
    objects, _ = rendered(
        cli,
        tmp_path,
        a_class(),
        a_cluster("eu", storage="shared", **SITE),
        cache,
        deployment,
        facts=facts,
    )
    (engine,) = [
        one
        for one in objects
        if one["kind"] == "Deployment"
        and one["metadata"]["labels"]["app.kubernetes.io/component"] == "engine"
    ]
    assert (
        engine["spec"]["template"]["spec"]["containers"][0]["startupProbe"][
            "failureThreshold"
        ]
        == 675
    )


def test_a_cache_in_an_image_is_mounted_without_being_staged(
    cli: Cli, tmp_path: Path
) -> None:
    cache, image = a_cache(), "registry.example/m@sha256:" + "ab" * 32
    cache["spec"] = {
        "source": "OCI",
        "oci": {"image": image, "sizeGiB": 10},
        "volume": {"image": True},
    }
    deployment = a_deployment(replicas=1, modelCacheRef={"name": "weights"})
    objects, _ = rendered(cli, tmp_path, cache, deployment)
    assert not {"PersistentVolumeClaim", "Job"} & {one["kind"] for one in objects}
    (engine,) = [
        one
        for one in objects
        if one["kind"] == "Deployment"
        and one["spec"]["template"]["spec"].get("volumes", [])[1:]
    ]
    assert (
        engine["spec"]["template"]["spec"]["volumes"][1]["image"]["reference"] == image
    )


def test_a_volume_of_one_node_among_the_files_is_warned_about(
    cli: Cli, tmp_path: Path
) -> None:
    cache, deployment = (
        a_cache(),
        a_deployment(replicas=1, modelCacheRef={"name": "weights"}),
    )
    cache["spec"]["volume"] = {"accessMode": "ReadWriteOnce"}
    deployment["spec"]["template"]["spec"]["engines"][0]["copies"] = 2
    _, err = rendered(cli, tmp_path, cache, deployment)
    assert "this replica has 2 pods: those on a second node wait without end" in err


def test_pods_of_a_cache_on_the_disks_of_nodes_fill_their_own_volumes(
    cli: Cli, tmp_path: Path
) -> None:
    cache = a_cache()
    cache["spec"]["volume"] = {"nodeLocal": True, "storageClassName": "local"}
    objects, _ = rendered(
        cli,
        tmp_path,
        cache,
        a_deployment(replicas=1, modelCacheRef={"name": "weights"}),
    )
    assert not {"PersistentVolumeClaim", "Job"} & {one["kind"] for one in objects}
    (engine,) = [
        one
        for one in objects
        if one["kind"] == "Deployment"
        and one["spec"]["template"]["spec"].get("initContainers")
    ]
    claim = engine["spec"]["template"]["spec"]["volumes"][1]["ephemeral"][
        "volumeClaimTemplate"
    ]["spec"]
    assert (claim["storageClassName"], claim["resources"]) == (
        "local",
        {"requests": {"storage": "10Gi"}},
    )
