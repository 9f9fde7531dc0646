"""Every bad manifest gets its documented error."""

from dataclasses import dataclass
from typing import Any

import pytest

from tests.api_types.builders import (
    CUT,
    DEVICE,
    GANG_LEADER,
    GANG_WORKER,
    MEMBER,
    REQUEST,
    TEMPLATE,
    a_cache,
    a_class,
    a_cluster,
    a_container,
    a_deployment,
    a_document,
    a_gateway,
    a_member,
    a_pool,
    a_replica,
    a_service,
    a_stack,
    an_endpoint,
    an_engine,
    an_envoy_gateway,
    problems,
)

E = "spec.template.spec.engines"
A_DURATION = (
    'must be a duration of the Gateway API as a string, such as "300s" or "1m30s"'
)
OUT_OF_BOUNDS = "must be between 1s and 24h, or 0s for no limit"
M = f"{E}[name=a].members"
DEVICES = "nodeSelector.devices[name=gpu]"


@dataclass(frozen=True)
class Case:
    story: str
    document: dict[str, Any]
    want: list[str]


def member_label(**labels: str) -> dict[str, Any]:
    return a_member(template={"metadata": {"labels": labels}})


ANNOTATED = a_member(template={"metadata": {"annotations": {"modelplane.ai/x": "y"}}})
TWO_PARTS = {"attributes": {"a": {"version": "9.0"}}}
BYTES = {"capacity": {"memory": {"value": "80GB"}}}

CASES = [
    Case(
        "deployment without replicas",
        a_deployment(top={"replicas": CUT}),
        ["spec.replicas: required field is missing"],
    ),
    Case(
        "cache without size",
        a_cache({"sizeGiB": CUT}),
        ["spec.huggingFace.sizeGiB: required field is missing"],
    ),
    Case(
        "replicas below zero",
        a_deployment(top={"replicas": -1}),
        ["spec.replicas: must be between 0 and 1000, got -1"],
    ),
    Case(
        "replicas above 1000",
        a_deployment(top={"replicas": 1001}),
        ["spec.replicas: must be between 0 and 1000, got 1001"],
    ),
    Case(
        "replicas as text",
        a_deployment(top={"replicas": "2"}),
        ['spec.replicas: must be an integer, got the string "2"'],
    ),
    Case(
        "no engine",
        a_deployment(engines=[]),
        [f"{E}: needs 1 to 8 engines, got 0"],
    ),
    Case(
        "nine engines",
        a_deployment(*(an_engine(name=f"e{index}") for index in range(9))),
        [f"{E}: needs 1 to 8 engines, got 9"],
    ),
    Case(
        "two engines of one name",
        a_deployment(an_engine(name="main"), an_engine(name="main")),
        [f"{E}[name=main]: duplicate name; engine names must be unique"],
    ),
    Case(
        "a Leader alone",
        a_deployment(an_engine(GANG_LEADER)),
        [
            f"{M}: must be one Standalone member, or one Leader and one Worker; got Leader"
        ],
    ),
    Case(
        "a Standalone with a Worker",
        a_deployment(an_engine({**MEMBER, "role": "Standalone"}, GANG_WORKER)),
        [
            (
                f"{M}: must be one Standalone member, or one Leader and one Worker; "
                "got Standalone, Worker"
            )
        ],
    ),
    Case(
        "first member without role, second Worker",
        a_deployment(an_engine(a_member(), GANG_WORKER)),
        [
            (
                f"{M}: must be one Standalone member, or one Leader and one Worker; "
                "got Standalone (default), Worker; set role: Leader on the first"
            ),
        ],
    ),
    Case(
        "three members",
        a_deployment(an_engine(GANG_LEADER, GANG_WORKER, GANG_WORKER)),
        [f"{M}: at most 2 members; raise worker.nodes to add followers"],
    ),
    Case(
        "a Leader with worker",
        a_deployment(an_engine({**GANG_LEADER, "worker": {"nodes": 2}}, GANG_WORKER)),
        [f"{M}[0].worker: only a Worker member may set worker; this member is Leader"],
    ),
    Case(
        "a follower with probes",
        a_deployment(
            an_engine(GANG_LEADER, {**GANG_WORKER, "probes": {"startupSeconds": 60}})
        ),
        [
            (
                f"{M}[1].probes: followers listen on no port; set it on the Leader: "
                "if its liveness check fails, its whole group is restarted"
            ),
        ],
    ),
    Case(
        "an empty worker block",
        a_deployment(an_engine(GANG_LEADER, {**GANG_WORKER, "worker": {}})),
        [f"{M}[1].worker.nodes: required field is missing"],
    ),
    Case(
        "64 followers",
        a_deployment(an_engine(GANG_LEADER, {**GANG_WORKER, "worker": {"nodes": 64}})),
        [f"{M}[1].worker.nodes: must be between 1 and 63, got 64"],
    ),
    Case(
        "no member requests devices",
        a_deployment(an_engine(a_member(nodeSelector=CUT))),
        [f"{M}: no member requests devices; give at least one a nodeSelector"],
    ),
    Case(
        "an empty selector",
        a_deployment(
            an_engine(
                a_member(nodeSelector={"devices": [{"name": "gpu", "selectors": [{}]}]})
            )
        ),
        [
            f"{M}[0].{DEVICES}.selectors[0]: an empty selector would match every device; set cel"
        ],
    ),
    Case(
        "a selector that does not compile",
        a_deployment(
            an_engine(
                a_member(
                    nodeSelector={
                        "devices": [
                            {"name": "gpu", "selectors": [{"cel": "device.capacity["}]}
                        ]
                    }
                )
            )
        ),
        [
            (
                f"{M}[0].{DEVICES}.selectors[0].cel: does not compile: line 1, column "
                "17: the selector ends in the middle of an expression"
            )
        ],
    ),
    Case(
        "PrefillDecode with one engine",
        a_deployment(an_engine(phase="Prefill"), serving={"mode": "PrefillDecode"}),
        [
            f"{E}: PrefillDecode needs exactly two engines, one Prefill and one Decode; got 1"
        ],
    ),
    Case(
        "both engines Prefill",
        a_deployment(
            an_engine(phase="Prefill"),
            an_engine(name="b", phase="Prefill"),
            serving={"mode": "PrefillDecode"},
        ),
        [
            (
                f"{E}: needs exactly one engine with phase Prefill, got 2; and "
                "exactly one with phase Decode, got 0"
            )
        ],
    ),
    Case(
        "a phase without serving",
        a_deployment(an_engine(phase="Decode")),
        [f"{E}[name=a].phase: allowed only when serving.mode is PrefillDecode"],
    ),
    Case(
        "a mode in lower case",
        a_deployment(serving={"mode": "prefilldecode"}),
        [
            'spec.template.spec.serving.mode: must be Unified or PrefillDecode, got "prefilldecode"'
        ],
    ),
    Case(
        "an empty toleration",
        a_deployment(tolerations=[{}]),
        [
            (
                "spec.template.spec.tolerations[0]: operator Equal (the default) "
                "needs a key; use operator: Exists to match all"
            )
        ],
    ),
    Case(
        "Exists with an empty value",
        a_deployment(tolerations=[{"operator": "Exists", "value": ""}]),
        ["spec.template.spec.tolerations[0].value: operator Exists takes no value"],
    ),
    Case(
        "a reserved label on replicas",
        a_deployment(
            top={"template": {"metadata": {"labels": {"modelplane.ai/cluster": "x"}}}}
        ),
        [
            (
                'spec.template.metadata.labels: key "modelplane.ai/cluster" uses the '
                "reserved prefix modelplane.ai/"
            )
        ],
    ),
    Case(
        "a bad label value on a member",
        a_deployment(an_engine(member_label(team="-bad-"))),
        [
            f'{M}[0].template.metadata.labels: "-bad-" is not a valid label value (key team)'
        ],
    ),
    Case(
        "a container of another name",
        a_deployment(an_engine(a_container(name="vllm"))),
        [
            (
                f"{M}[0].template.spec.containers[0].name: the single container must "
                'be named engine, got "vllm"'
            )
        ],
    ),
    Case(
        "two containers",
        a_deployment(
            an_engine(
                a_member(
                    template={
                        "spec": {"containers": TEMPLATE["spec"]["containers"] * 2}
                    }
                )
            )
        ),
        [f"{M}[0].template.spec.containers: exactly 1 container is supported, got 2"],
    ),
    Case(
        "a container with resources",
        a_deployment(an_engine(a_container(resources={"limits": {}}))),
        [
            (
                f"{M}[0].template.spec.containers[0].resources: unknown field; "
                "request GPUs through nodeSelector.devices"
            )
        ],
    ),
    Case(
        "an empty member template",
        a_deployment(an_engine(a_member(template={"spec": CUT}))),
        [f"{M}[0].template.spec: required; a member needs a pod to run"],
    ),
    Case(
        "a variable with value and source",
        a_deployment(
            an_engine(
                a_container(
                    env=[
                        {
                            "name": "X",
                            "value": "1",
                            "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}},
                        }
                    ]
                )
            )
        ),
        [
            (
                f"{M}[0].template.spec.containers[0].env[name=X]: set either value or "
                "valueFrom, not both"
            )
        ],
    ),
    Case(
        "engines next to the template",
        a_deployment(top={"engines": [an_engine()]}),
        [
            (
                "spec.engines: not allowed together with spec.template; move it to "
                "spec.template.spec.engines"
            )
        ],
    ),
    Case(
        "workers of an earlier version",
        a_deployment(top={"workers": {"topology": {"tensor": 8}}}),
        [
            (
                "spec.workers: field was removed; describe pods in engines[].members "
                "and put parallelism in engine args"
            )
        ],
    ),
    Case(
        "an engine name with capitals",
        a_deployment(an_engine(name="Qwen_3")),
        [
            f"{E}[name=Qwen_3].name: must be a DNS label: lower-case letters, digits, hyphen"
        ],
    ),
    Case(
        "a provider without its block",
        a_class(provisioning={"provider": "GKE"}),
        ["spec.provisioning.gke: required because provider is GKE"],
    ),
    Case(
        "a device without class",
        a_class({"name": "gpu", "driver": "gpu.nvidia.com"}),
        [
            (
                "spec.devices[name=gpu].deviceClassName: required because claim is "
                "DRA (the default); use claim: Synthetic where no driver exists"
            ),
        ],
    ),
    Case(
        "an attribute of two types",
        a_class({**DEVICE, "attributes": {"a": {"string": "x", "int": 1}}}),
        [
            (
                "spec.devices[name=gpu].attributes.a: set exactly one of string, "
                "version, bool, int; got string, int"
            )
        ],
    ),
    Case(
        "an attribute of no type",
        a_class({**DEVICE, "attributes": {"a": {}}}),
        [
            (
                "spec.devices[name=gpu].attributes.a: set exactly one of string, "
                "version, bool, int; got none"
            )
        ],
    ),
    Case(
        "seventeen accelerators",
        a_class(
            provisioning={
                "provider": "EKS",
                "eks": {
                    "instanceType": "p5",
                    "accelerator": {"type": "h200", "count": 17},
                },
            }
        ),
        ["spec.provisioning.eks.accelerator.count: must be between 1 and 16, got 17"],
    ),
    Case(
        "a class without devices",
        a_class(devices=[]),
        ["spec.devices: needs at least 1 item"],
    ),
    Case(
        "an empty pool list",
        a_cluster(nodePools=[]),
        ["spec.nodePools: needs at least 1 item, or leave the field out"],
    ),
    Case(
        "a service without endpoints",
        a_service(endpoints=[]),
        ["spec.endpoints: needs at least 1 item"],
    ),
    Case(
        "Existing without its block",
        a_cluster(cluster={"existing": CUT}),
        ["spec.cluster.existing: required because source is Existing"],
    ),
    Case(
        "a region on AKS",
        a_cluster(
            source="AKS", cluster={"aks": {"location": CUT, "region": "westeurope"}}
        ),
        [
            "spec.cluster.aks: location is missing; unknown field region, did you mean location?"
        ],
    ),
    Case(
        "a version as a number",
        a_cluster(source="EKS", cluster={"eks": {"kubernetesVersion": 1.36}}),
        ['spec.cluster.eks.kubernetesVersion: must be a string; quote it: "1.36"'],
    ),
    Case(
        "a taint that only prefers",
        a_cluster(taints=[{"key": "a", "effect": "PreferNoSchedule"}]),
        [
            'spec.taints[0].effect: must be NoSchedule or NoExecute, got "PreferNoSchedule"'
        ],
    ),
    Case(
        "one taint twice",
        a_cluster(
            taints=[
                {"key": "a", "effect": "NoExecute"},
                {"key": "a", "value": "b", "effect": "NoExecute"},
            ]
        ),
        ["spec.taints[key=a,effect=NoExecute]: duplicate taint"],
    ),
    Case(
        "a fabric without InfiniBand",
        a_cluster(a_pool(fabric={"infiniband": {"fabric": "f1"}})),
        [
            (
                "spec.nodePools[name=p].fabric.infiniband: allowed only when "
                "fabric.type is InfiniBand, it is None"
            )
        ],
    ),
    Case(
        "InfiniBand on Nebius without a fabric",
        a_cluster(a_pool("Nebius", fabric={"type": "InfiniBand"}), source="Nebius"),
        ["spec.nodePools[name=p].fabric.infiniband: required for InfiniBand on Nebius"],
    ),
    Case(
        "a reservation id in capitals",
        a_cluster(
            a_pool("EKS", capacityBlock={"capacityReservationId": "CR-12"}),
            source="EKS",
        ),
        [
            (
                "spec.nodePools[name=p].capacityBlock.capacityReservationId: must "
                'match ^cr-[0-9a-f]+$, got "CR-12"'
            )
        ],
    ),
    Case(
        "a GKE pool without zones",
        a_cluster(a_pool("GKE", zones=CUT), source="GKE"),
        ["spec.nodePools[name=p].zones: at least one zone is required on GKE"],
    ),
    Case(
        "an AKS pool with a hyphen",
        a_cluster(a_pool("AKS", name="gpu-h100"), source="AKS"),
        [
            (
                "spec.nodePools[name=gpu-h100].name: AKS pool names are at most 12 "
                "lower-case letters or digits, letter first"
            )
        ],
    ),
    Case(
        "a Nebius pool with a minimum alone",
        a_cluster(a_pool("Nebius", minNodeCount=1), source="Nebius"),
        [
            "spec.nodePools[name=p].maxNodeCount: required because minNodeCount is set on Nebius"
        ],
    ),
    Case(
        "a pool of an earlier version",
        a_cluster({"name": "p", "class": "x"}),
        [
            (
                "spec.nodePools[name=p]: className is missing; unknown field class, "
                "did you mean className?"
            )
        ],
    ),
    Case(
        "a pool of an earlier version without a name",
        a_cluster({"class": "x"}),
        [
            "spec.nodePools[0]: className is missing; unknown field class, did you mean className?",
            "spec.nodePools[0].name: required field is missing",
        ],
    ),
    Case(
        "MetalLB without its block",
        a_gateway(traefik={"loadBalancer": "MetalLB"}),
        ["spec.traefik.metallb: required because loadBalancer is MetalLB"],
    ),
    Case(
        "Traefik without its block",
        a_gateway(traefik=CUT),
        ["spec.traefik: required because backend is Traefik"],
    ),
    Case(
        "Traefik with the block of Envoy",
        a_gateway(envoy={}),
        [
            (
                "spec.envoy: not allowed because backend is Traefik; remove it, or set "
                "backend to Envoy"
            )
        ],
    ),
    Case(
        "Envoy with the block of Traefik",
        a_gateway(backend="Envoy"),
        [
            (
                "spec.traefik: not allowed because backend is Envoy; remove it, or set "
                "backend to Traefik"
            )
        ],
    ),
    Case(
        "MetalLB for Envoy without its block",
        an_envoy_gateway(loadBalancer="MetalLB"),
        ["spec.envoy.metallb: required because loadBalancer is MetalLB"],
    ),
    Case(
        "a second gateway",
        a_gateway("main"),
        ["metadata.name: InferenceGateway is a singleton and must be named default"],
    ),
    Case(
        "a weight of zero",
        a_service({"weight": 0, "selector": {"matchLabels": {"a": "b"}}}),
        [
            (
                "spec.endpoints[0].weight: must be between 1 and 1000000, got 0; "
                "remove the entry to send it nothing"
            )
        ],
    ),
    Case(
        "retries: none",
        a_service(retries={"attempts": 0}),
        [
            (
                "spec.retries.attempts: must be between 1 and 5, got 0; leave out "
                "spec.retries to send no request again"
            )
        ],
    ),
    Case(
        "retries: too many",
        a_service(retries={"attempts": 6}),
        ["spec.retries.attempts: must be between 1 and 5, got 6"],
    ),
    Case(
        "retries: a code as text",
        a_service(retries={"codes": ["503"]}),
        ['spec.retries.codes[0]: must be an integer, got the string "503"'],
    ),
    Case(
        "retries: codes of engines, and one twice",
        a_service(retries={"codes": [500, 503, 503]}),
        [
            (
                "spec.retries.codes[0]: must be 429, 502, 503 or 504, got 500; after "
                "any other code an engine has already read the request"
            ),
            "spec.retries.codes[2]: 503 is listed twice",
        ],
    ),
    Case(
        "retries: as another API has it",
        a_service(retries={"on": [503]}),
        ["spec.retries.on: unknown field, did you mean codes?"],
    ),
    Case(
        "retries: a wait that is too long",
        a_service(retries={"backoffMilliseconds": 60_000}),
        ["spec.retries.backoffMilliseconds: must be between 0 and 10000, got 60000"],
    ),
    Case(
        "retries: by another name",
        a_service(retry={"attempts": 1}),
        ["spec.retry: unknown field, did you mean retries?"],
    ),
    Case(
        "retries: a timeout",
        a_service(retries={"timeout": "30s"}),
        [
            "spec.retries.timeout: unknown field; set the time limit of a request in spec.timeouts"
        ],
    ),
    Case(
        "timeouts: none",
        a_service(timeouts={}),
        [
            (
                "spec.timeouts: needs request, backendRequest or both; remove "
                "spec.timeouts for no timeouts"
            )
        ],
    ),
    Case(
        "timeouts: by another name",
        a_service(timeout={"request": "30s"}),
        ["spec.timeout: unknown field, did you mean timeouts?"],
    ),
    Case(
        "timeouts: a field by another name",
        a_service(timeouts={"request": "60s", "backend": "30s"}),
        ["spec.timeouts.backend: unknown field, did you mean backendRequest?"],
    ),
    Case(
        "timeouts: a number",
        a_service(timeouts={"request": 300}),
        [f"spec.timeouts.request: {A_DURATION}; got 300"],
    ),
    Case(
        "timeouts: words",
        a_service(timeouts={"request": "5 minutes"}),
        [f'spec.timeouts.request: {A_DURATION}, got "5 minutes"'],
    ),
    Case(
        "timeouts: a fraction",
        a_service(timeouts={"backendRequest": "1.5h"}),
        [f'spec.timeouts.backendRequest: {A_DURATION}, got "1.5h"'],
    ),
    Case(
        "timeouts: a line more",
        a_service(timeouts={"request": "5s\n"}),
        [f'spec.timeouts.request: {A_DURATION}, got "5s\n"'],
    ),
    Case(
        "timeouts: a negative one",
        a_service(timeouts={"request": "-5s"}),
        [f'spec.timeouts.request: {A_DURATION}, got "-5s"'],
    ),
    Case(
        "timeouts: more parts than four",
        a_service(timeouts={"request": "1s1s1s1s1s"}),
        [f'spec.timeouts.request: {A_DURATION}, got "1s1s1s1s1s"'],
    ),
    Case(
        "timeouts: too short and too long",
        a_service(timeouts={"request": "24h1ms", "backendRequest": "999ms"}),
        [
            f"spec.timeouts.request: {OUT_OF_BOUNDS}, got 24h1ms",
            f"spec.timeouts.backendRequest: {OUT_OF_BOUNDS}, got 999ms",
        ],
    ),
    Case(
        "timeouts: longer for an endpoint than for the request",
        a_service(timeouts={"request": "1m", "backendRequest": "61s"}),
        [
            "spec.timeouts.backendRequest: must be at most spec.timeouts.request, 1m, got 61s"
        ],
    ),
    Case(
        "timeouts: as long as they may be, and equal",
        a_service(timeouts={"request": "24h", "backendRequest": "1440m"}),
        [],
    ),
    Case(
        "timeouts: one alone, as short as it may be",
        a_service(timeouts={"backendRequest": "1000ms"}),
        [],
    ),
    Case(
        "timeouts: a request that the gateway does not end",
        a_service(timeouts={"request": "0s", "backendRequest": "1m30s"}),
        [],
    ),
    Case(
        "a port that is not a number",
        an_endpoint(url="https://host:abc"),
        ['spec.url: port "abc" is not a number'],
    ),
    Case("an empty URL", an_endpoint(url=""), ["spec.url: must not be empty"]),
    Case(
        "another cache source",
        a_cache(source="NGC"),
        ['spec.source: must be HuggingFace, OCI or S3, got "NGC"'],
    ),
    Case(
        "a repository with a command",
        a_cache({"repo": "a/b; reboot"}),
        [
            (
                "spec.huggingFace.repo: not a repository id; write owner/name or "
                "name, of letters, digits, dot, underscore and hyphen"
            )
        ],
    ),
    Case(
        "a replica engine without requests",
        a_replica(deviceRequests=CUT),
        ["spec.engines[name=a].members: at least one member must carry deviceRequests"],
    ),
    Case(
        "a replica engine with an empty list of requests",
        a_replica(deviceRequests=[]),
        [
            (
                "spec.engines[name=a].members[0].deviceRequests: must not be empty, "
                "leave it out when nothing is claimed"
            )
        ],
    ),
    Case(
        "a stack with an identity alone",
        a_stack(
            secrets=[{"type": "GoogleApplicationCredentials", "name": "n", "key": "k"}]
        ),
        ["spec.secrets: must include an entry of type Kubeconfig"],
    ),
    Case(
        "a renamed kind",
        a_document("ModelPlacement"),
        ["kind: unknown kind; it was renamed ModelReplica"],
    ),
]

READ_BY_THE_SCHEDULER = [
    (
        "a version of two parts",
        TWO_PARTS,
        "spec.devices[name=gpu].attributes.a.version",
    ),
    (
        "a quantity with a unit of bytes",
        {"capacity": {"memory": {"value": "80GB"}}},
        "spec.devices[name=gpu].capacity.memory.value",
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.story)
def test_a_bad_manifest_is_refused_with_every_problem_and_nothing_else(
    case: Case,
) -> None:
    assert problems(case.document) == case.want


@pytest.mark.parametrize(
    ("change", "field"),
    [case[1:] for case in READ_BY_THE_SCHEDULER],
    ids=[case[0] for case in READ_BY_THE_SCHEDULER],
)
def test_a_value_that_the_scheduler_cannot_read_is_rejected_with_its_error(
    change: dict[str, Any], field: str
) -> None:
    (problem,) = problems(a_class({**DEVICE, **change}))
    hint = {"version": "major.minor.patch", "value": "did you mean 80G or 80Gi?"}[
        field.rpartition(".")[2]
    ]
    assert problem.startswith(f"{field}: ")
    assert hint in problem


ACCEPTED = [
    ("serving without a mode", a_deployment(serving={})),
    (
        "a member annotation under our prefix",
        a_deployment(an_engine(ANNOTATED)),
    ),
    (
        "InfiniBand on AKS without a block",
        a_cluster(a_pool("AKS", fabric={"type": "InfiniBand"}), source="AKS"),
    ),
    (
        "a pool naming a class that may not exist",
        a_cluster(a_pool(className="no-such-class")),
    ),
    (
        "a deployment naming a cache that may not exist",
        a_deployment(modelCacheRef={"name": "no-such-cache"}),
    ),
    (
        "a cluster selector that may match nothing",
        a_deployment(clusterSelector={"matchLabels": {"a": "b"}}),
    ),
    (
        "a selector that no device may satisfy",
        a_deployment(an_engine(a_member(nodeSelector={"devices": [REQUEST]}))),
    ),
    ("a service selecting nothing yet", a_service()),
    (
        "a cache that no cluster may stage",
        a_cache(clusterSelector={"matchLabels": {"no": "cluster"}}),
    ),
    (
        "a cache whose token may be missing",
        a_cache({"authSecret": {"name": "no-such-secret"}}),
    ),
    ("an EKS pool of a class without an EKS block", a_cluster(source="EKS")),
    ("zero replicas", a_deployment(top={"replicas": 0})),
    ("eleven replicas", a_deployment(top={"replicas": 11})),
    (
        "a name with a dot and one with a leading digit",
        a_document("ModelDeployment", "4bit-qwen2.5", a_deployment()["spec"]),
    ),
]


@pytest.mark.parametrize(
    "document", [case[1] for case in ACCEPTED], ids=[case[0] for case in ACCEPTED]
)
def test_a_problem_that_only_conditions_report_is_accepted_without_a_warning(
    document: dict[str, Any],
) -> None:
    assert problems(document) == []
