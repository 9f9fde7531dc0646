"""Rules over several fields that are not covered by the bad manifests."""

from typing import Any

import pytest

from tests.api_types.builders import (
    CUT,
    DEVICE,
    GANG_LEADER,
    GANG_WORKER,
    RESOLVED,
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
    merged,
    problems,
)


def annotated(document: dict[str, Any], **annotations: str) -> dict[str, Any]:
    """Return annotations with our prefix."""
    held = {
        f"modelplane.ai/{key.replace('_', '-')}": value
        for key, value in annotations.items()
    }
    out: dict[str, Any] = merged(document, {"metadata": {"annotations": held}})
    return out


def named(name: str) -> dict[str, Any]:
    return a_document("ModelService", name, a_service()["spec"])


def in_namespace(namespace: str) -> dict[str, Any]:
    return a_document("ModelService", "chat", a_service()["spec"], namespace=namespace)


def labelled(**metadata: Any) -> dict[str, Any]:
    return a_deployment(top={"template": {"metadata": {"labels": metadata["labels"]}}})


def gke(**spec: Any) -> dict[str, Any]:
    return a_cluster(source="GKE", **spec)


def with_identity(**identity: str) -> dict[str, Any]:
    return a_cluster(
        cluster={
            "source": "Existing",
            "existing": {"secretRef": {"name": "kube"}, "identitySecretRef": identity},
        }
    )


NOT_A_NAME = "must be a DNS subdomain: lower-case letters, digits, hyphen, dot; got"
TWO_GRANTS = "set at most one of deviceClassName, resourceName; got deviceClassName, resourceName"
EQUALITY = "unknown field; only equality is supported, write the pairs as matchLabels"
NOT_A_KEY = "is not a valid Kubernetes label key"
TWO_ENGINES = "PrefillDecode needs exactly two engines, one Prefill and one Decode"
PLATFORMS = "belongs to the platform; use a namespace of your own"
LABELS = "spec.template.metadata.labels"
POOL = "spec.nodePools[name=p]"
OCI = {"image": "registry.example/model:1", "sizeGiB": 10}
NOT_A_PORT = "the port of its host 'registry:99999' must be between 1 and 65535"
NOT_AN_OBJECT = (
    "not the name of an object; use lower-case letters, digits, '-' and '.', at most "
    "253"
)
ELSEWHERE = {"bucket": "acme-models", "prefix": "models/qwen", "sizeGiB": 10}
BUCKET = {**ELSEWHERE, "region": "eu-central-1"}
NOT_A_REPOSITORY = (
    "not a repository id; write owner/name or name, of letters, digits, dot, "
    "underscore and hyphen"
)
OWN_VOLUME_CLASS = (
    "required with volume.nodeLocal: use a class for volumes on node disks, with "
    "volumeBindingMode WaitForFirstConsumer"
)
PATTERN_HINT = (
    "use letters, digits, spaces, ._-/+=@,~() and the wildcards * ? [ ] !, such as "
    "*.safetensors or original/*"
)
NOT_A_PATH = (
    "its repository must be lower-case letters and digits, separated by single '.', "
    "'_' or '/', by '__' or by '-'"
)
ENV = (
    "spec.template.spec.engines[name=a].members[0].template.spec.containers[0]"
    ".env[name=X].valueFrom"
)

CASES: list[tuple[str, dict[str, Any], list[str] | None]] = [
    (
        "an identity that is the credential by which clusters are created",
        with_identity(name="eks-ns-team", key="credentials"),
        [
            (
                "spec.cluster.existing.identitySecretRef.name: Secret eks-ns-team is "
                "for creating clusters; store an identity under another name"
            )
        ],
    ),
    (
        "an identity with a similar name under another key",
        with_identity(name="gke-prod"),
        [],
    ),
    ("a name with dots and leading digits", named("4bit.qwen2.5"), []),
    (
        "a name in capitals",
        named("Qwen"),
        [f'metadata.name: {NOT_A_NAME} "Qwen"'],
    ),
    (
        "a name that ends in a dash",
        named("qwen-"),
        [f'metadata.name: {NOT_A_NAME} "qwen-"'],
    ),
    (
        "a name with two dots in a row",
        named("a..b"),
        [f'metadata.name: {NOT_A_NAME} "a..b"'],
    ),
    (
        "the system namespace",
        in_namespace("modelplane-system"),
        [f'metadata.namespace: "modelplane-system" {PLATFORMS}'],
    ),
    (
        "a namespace of Kubernetes",
        in_namespace("kube-public"),
        [f'metadata.namespace: "kube-public" {PLATFORMS}'],
    ),
    (
        "a namespace of the stack",
        in_namespace("monitoring"),
        [f'metadata.namespace: "monitoring" {PLATFORMS}'],
    ),
    ("an ordinary namespace", in_namespace("kubernetes-fans"), []),
    ("a machine-written kind in the system namespace", a_stack(), []),
    (
        "a namespace with a dot",
        in_namespace("a.b"),
        [
            'metadata.namespace: must be a DNS label: lower-case letters, digits, hyphen; got "a.b"'
        ],
    ),
    (
        "our prefix on labels of the object itself",
        merged(a_cluster(), {"metadata": {"labels": {"modelplane.ai/region": "eu"}}}),
        [],
    ),
    (
        "a bad label on the object itself",
        merged(a_cluster(), {"metadata": {"labels": {"a b": "c"}}}),
        ['metadata.labels: "a b" is not a valid Kubernetes label key'],
    ),
    (
        "a key without a name",
        labelled(labels={"a.example/": "x"}),
        [f'{LABELS}: "a.example/" is not a valid Kubernetes label key'],
    ),
    (
        "a prefix in capitals",
        labelled(labels={"A.example/x": "y"}),
        [
            (
                f'{LABELS}: the prefix of key "A.example/x" must be a DNS subdomain '
                "of at most 253 characters"
            )
        ],
    ),
    (
        "a prefix of 253 characters",
        labelled(labels={f"{'a' * 251}.b/x": "y"}),
        [],
    ),
    (
        "a prefix of 254 characters",
        labelled(labels={f"{'a' * 252}.b/x": "y"}),
        [
            (
                f'{LABELS}: the prefix of key "{"a" * 252}.b/x" must be a DNS '
                "subdomain of at most 253 characters"
            )
        ],
    ),
    (
        "a value with a space",
        labelled(labels={"a": "b c"}),
        [f'{LABELS}: "b c" is not a valid label value (key a)'],
    ),
    (
        "a bad annotation key on a member",
        a_deployment(
            an_engine(a_member(template={"metadata": {"annotations": {"-": "x"}}}))
        ),
        [
            (
                "spec.template.spec.engines[name=a].members[0].template.metadata.annotations: "
                '"-" is not a valid Kubernetes annotation key'
            )
        ],
    ),
    (
        "a variable with an empty source",
        a_deployment(an_engine(a_container(env=[{"name": "X", "valueFrom": {}}]))),
        None,
    ),
    (
        "an empty value next to a source",
        a_deployment(
            an_engine(
                a_container(
                    env=[
                        {
                            "name": "X",
                            "value": "",
                            "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}},
                        }
                    ]
                )
            )
        ),
        [],
    ),
    (
        "a Leader and a Worker in any order",
        a_deployment(an_engine(GANG_WORKER, GANG_LEADER)),
        [],
    ),
    (
        "two Leaders",
        a_deployment(an_engine(GANG_LEADER, GANG_LEADER)),
        [
            (
                "spec.template.spec.engines[name=a].members: must be one Standalone "
                "member, or one Leader and one Worker; got Leader, Leader"
            )
        ],
    ),
    (
        "PrefillDecode with one phase unset",
        a_deployment(
            an_engine(phase="Prefill"),
            an_engine(name="b"),
            serving={"mode": "PrefillDecode"},
        ),
        [
            "spec.template.spec.engines: needs exactly one engine with phase Decode, got 0"
        ],
    ),
    (
        "phases on a replica without PrefillDecode",
        merged(
            a_replica(),
            {
                "spec": {
                    "engines": [
                        {
                            "name": "a",
                            "phase": "Decode",
                            "members": a_replica()["spec"]["engines"][0]["members"],
                        }
                    ]
                }
            },
        ),
        ["spec.engines[name=a].phase: allowed only when serving.mode is PrefillDecode"],
    ),
    (
        "PrefillDecode without phases on a replica",
        merged(a_replica(), {"spec": {"serving": {"mode": "PrefillDecode"}}}),
        [f"spec.engines: {TWO_ENGINES}; got 1"],
    ),
    (
        "an Equal toleration that says so",
        a_deployment(tolerations=[{"operator": "Equal", "key": ""}]),
        [
            (
                "spec.template.spec.tolerations[0]: operator Equal needs a key; use "
                "operator: Exists to match all"
            )
        ],
    ),
    (
        "one taint key under both effects",
        a_cluster(
            taints=[
                {"key": "a", "effect": "NoSchedule"},
                {"key": "a", "effect": "NoExecute"},
            ]
        ),
        [],
    ),
    (
        "a plugin device without its resource",
        a_class({**DEVICE, "claim": "DevicePlugin"}),
        ["spec.devices[name=gpu].resourceName: required because claim is DevicePlugin"],
    ),
    (
        "a plugin device",
        a_class(
            {
                "name": "gpu",
                "driver": "d",
                "claim": "DevicePlugin",
                "resourceName": "nvidia.com/gpu",
            }
        ),
        [],
    ),
    (
        "a request granted two ways",
        a_replica(deviceRequests=[{**RESOLVED, "resourceName": "nvidia.com/gpu"}]),
        [f"spec.engines[name=a].members[0].deviceRequests[name=gpu]: {TWO_GRANTS}"],
    ),
    (
        "a request of slots, which are not claimed",
        a_replica(deviceRequests=[{"name": "gpu"}]),
        [],
    ),
    (
        "an expression in a label selector",
        a_deployment(clusterSelector={"matchExpressions": []}),
        [
            f"spec.template.spec.clusterSelector.matchExpressions: {EQUALITY}",
        ],
    ),
    (
        "a toleration with a time",
        a_deployment(tolerations=[{"key": "a", "tolerationSeconds": 30}]),
        [
            (
                "spec.template.spec.tolerations[0].tolerationSeconds: unknown field; "
                "spec.drain limits how fast replicas are moved"
            )
        ],
    ),
    (
        "a request granted by a plugin",
        a_replica(deviceRequests=[{"name": "gpu", "resourceName": "nvidia.com/gpu"}]),
        [],
    ),
    (
        "an OCI cache",
        a_document(
            "ModelCache",
            "w",
            {"source": "OCI", "oci": {**OCI, "plainHTTP": True, "scratch": "node"}},
        ),
        [],
    ),
    (
        "an OCI cache without its block",
        a_cache(source="OCI"),
        ["spec.oci: required because source is OCI"],
    ),
    (
        "a volume of another class",
        a_cache(volume={"storageClassName": "fast-ssd"}),
        [],
    ),
    (
        "a volume of each pod",
        a_cache(volume={"nodeLocal": True, "storageClassName": "local"}),
        [],
    ),
    (
        "a volume of each pod, without a class",
        a_cache(
            volume={"nodeLocal": True},
            hydration={
                "serviceAccountName": "x",
                "tolerations": [{"operator": "Exists"}],
            },
        ),
        [
            f"spec.volume.storageClassName: {OWN_VOLUME_CLASS}",
            *(
                (
                    f"spec.hydration.{field}: no Job runs for volume.nodeLocal: "
                    "engine pods use the settings of their InferenceClass; remove it"
                )
                for field in ("serviceAccountName", "tolerations")
            ),
        ],
    ),
    (
        "an image and a volume of each pod",
        a_document(
            "ModelCache",
            "w",
            {"source": "OCI", "oci": OCI, "volume": {"image": True, "nodeLocal": True}},
        ),
        [
            (
                "spec.volume.nodeLocal: an image needs no volume on the node; remove "
                "volume.nodeLocal or volume.image"
            )
        ],
    ),
    (
        "an image as a volume",
        a_document(
            "ModelCache",
            "w",
            {
                "source": "OCI",
                "oci": {**OCI, "pullSecret": "p"},
                "volume": {"image": True},
            },
        ),
        [],
    ),
    (
        "an image as a volume, and a volume",
        a_document(
            "ModelCache",
            "w",
            {
                "source": "OCI",
                "oci": {**OCI, "plainHTTP": True, "scratch": "node"},
                "volume": {"image": True, "storageClassName": "fast"},
                "hydration": {"disableXet": True},
            },
        ),
        [
            (
                "spec.volume.storageClassName: volume.image needs no volume, because "
                "nodes pull the image; remove one of them"
            ),
            (
                "spec.oci.plainHTTP: no Job unpacks an image with volume.image, "
                "because nodes pull it with their own configuration; remove it"
            ),
            (
                "spec.oci.scratch: no Job unpacks an image with volume.image, because "
                "nodes pull it with their own configuration; remove it"
            ),
            (
                "spec.hydration: no Job runs for volume.image, because nodes pull the "
                "image with their own configuration; remove it"
            ),
        ],
    ),
    (
        "a repository as a volume",
        a_cache(volume={"image": True, "accessMode": "ReadWriteOnce"}),
        [
            (
                "spec.volume.image: only images can be mounted this way, and source "
                "is HuggingFace; remove it, or use source OCI"
            ),
            (
                "spec.volume.accessMode: volume.image needs no volume, because nodes "
                "pull the image; remove one of them"
            ),
        ],
    ),
    (
        "a class with an invalid name",
        a_cache(volume={"storageClassName": "A b"}),
        [f"spec.volume.storageClassName: {NOT_AN_OBJECT}"],
    ),
    (
        "a bucket",
        a_document("ModelCache", "w", {"source": "S3", "s3": BUCKET}),
        [],
    ),
    (
        "a bucket of another server",
        a_document(
            "ModelCache",
            "w",
            {
                "source": "S3",
                "s3": {
                    **ELSEWHERE,
                    "endpoint": "http://minio.minio:9000",
                    "pathStyle": True,
                    "authSecret": {"name": "a"},
                },
            },
        ),
        [],
    ),
    (
        "a bucket without its block",
        a_cache(source="S3"),
        ["spec.s3: required because source is S3"],
    ),
    (
        "a bucket somewhere on AWS",
        a_document("ModelCache", "w", {"source": "S3", "s3": ELSEWHERE}),
        [
            "spec.s3.region: required unless endpoint is set: it is the AWS region of the bucket"
        ],
    ),
    (
        "a bucket whose parts lead elsewhere",
        a_document(
            "ModelCache",
            "w",
            {
                "source": "S3",
                "s3": {
                    **BUCKET,
                    "bucket": "a..b",
                    "prefix": "../x",
                    "endpoint": "https://a@b/c",
                },
            },
        ),
        [
            (
                "spec.s3.bucket: not a bucket; use 3 to 63 lower-case letters, "
                "digits, dots and hyphens, without a hyphen at either end"
            ),
            (
                "spec.s3.prefix: not a prefix; write folders separated by single "
                "slashes, such as models/qwen, without a leading slash"
            ),
            (
                "spec.s3.endpoint: not an endpoint; write https://HOST or "
                "https://HOST:PORT (1 to 65535), without a path"
            ),
        ],
    ),
    (
        "a server with an invalid port",
        a_document(
            "ModelCache",
            "w",
            {"source": "S3", "s3": {**BUCKET, "endpoint": "https://minio:99999"}},
        ),
        [
            (
                "spec.s3.endpoint: not an endpoint; write https://HOST or "
                "https://HOST:PORT (1 to 65535), without a path"
            )
        ],
    ),
    (
        "a registry with an invalid port",
        a_document(
            "ModelCache",
            "w",
            {"source": "OCI", "oci": {**OCI, "image": "registry:99999/m:1"}},
        ),
        [
            (
                f"spec.oci.image: not an image reference: {NOT_A_PORT}; write "
                "registry/name:tag or registry/name@digest"
            ),
        ],
    ),
    (
        "a region with a blank",
        a_document(
            "ModelCache",
            "w",
            {"source": "S3", "s3": {**BUCKET, "region": "eu central"}},
        ),
        [
            (
                "spec.s3.region: not a region; use lower-case letters, digits and "
                "hyphens, such as eu-central-1"
            )
        ],
    ),
    (
        "an image that looks like a flag",
        a_document(
            "ModelCache", "w", {"source": "OCI", "oci": {**OCI, "image": "--rm"}}
        ),
        [
            (
                f"spec.oci.image: not an image reference: {NOT_A_PATH}; write "
                "registry/name:tag or registry/name@digest"
            )
        ],
    ),
    (
        "an image that leads out of its registry's repositories",
        a_document(
            "ModelCache",
            "w",
            {
                "source": "OCI",
                "oci": {**OCI, "image": "registry.example/../internal/x:1"},
            },
        ),
        [
            (
                f"spec.oci.image: not an image reference: {NOT_A_PATH}; write "
                "registry/name:tag or registry/name@digest"
            )
        ],
    ),
    (
        "a repository that leads out of the hub's models",
        a_cache({"repo": "../x"}),
        [f"spec.huggingFace.repo: {NOT_A_REPOSITORY}"],
    ),
    (
        "selected files",
        a_cache(
            {
                "allowPatterns": ["*.safetensors", "*.json"],
                "ignorePatterns": ["original/*"],
            }
        ),
        [],
    ),
    (
        "a pattern that a kubelet would expand",
        a_cache({"ignorePatterns": ["original/*", "$(HF_TOKEN)"]}),
        [
            (
                "spec.huggingFace.ignorePatterns[1]: '$(HF_TOKEN)' is not a pattern "
                f"of files; {PATTERN_HINT}"
            )
        ],
    ),
    (
        "no pattern at all",
        a_cache({"allowPatterns": []}),
        [
            "spec.huggingFace.allowPatterns: needs at least 1 item, or leave the field out"
        ],
    ),
    (
        "too many patterns",
        a_cache({"ignorePatterns": ["a"] * 33}),
        ["spec.huggingFace.ignorePatterns: at most 32 items, got 33"],
    ),
    (
        "a pattern that is too long",
        a_cache({"ignorePatterns": ["a" * 257]}),
        ["spec.huggingFace.ignorePatterns[0]: must be at most 256 characters, got 257"],
    ),
    ("a revision with a branch path", a_cache({"revision": "refs/pr/12"}), []),
    (
        "a revision that looks like a flag",
        a_cache({"revision": "-f"}),
        [
            (
                "spec.huggingFace.revision: not a revision; use letters, digits, dot, "
                "underscore, slash and hyphen, without a leading hyphen"
            )
        ],
    ),
    (
        "blocks of other clouds next to the named one",
        gke(cluster={"eks": {"region": "us-east-2"}}),
        [],
    ),
    (
        "a minimum above the maximum",
        gke(nodePools=[a_pool("GKE", minNodeCount=5, maxNodeCount=4)]),
        None,
    ),
    ("a minimum alone on GKE", gke(nodePools=[a_pool("GKE", minNodeCount=0)]), []),
    (
        "a pool name that no label takes",
        a_cluster(a_pool(name="a b")),
        ['spec.nodePools[name=a b].name: "a b" is not usable as a node label value'],
    ),
    (
        "a region on Nebius",
        a_cluster(source="Nebius", cluster={"nebius": {"region": "eu"}}),
        None,
    ),
    (
        "known settings",
        annotated(
            a_cluster(),
            stack="external",
            routing="service",
            scheduler_type="kai",
            mesh_provider="istio",
        ),
        [],
    ),
    (
        "an unknown stack",
        annotated(a_cluster(), stack="none"),
        [
            (
                'metadata.annotations["modelplane.ai/stack"]: must be managed, external '
                'or plan, got "none"'
            )
        ],
    ),
    (
        "an unknown scheduler",
        annotated(a_cluster(), scheduler_type="volcano"),
        [
            (
                'metadata.annotations["modelplane.ai/scheduler-type"]: must be none, '
                'kai or kueue, got "volcano"'
            )
        ],
    ),
    (
        "an empty task queue",
        annotated(a_cluster(), task_queue=""),
        [
            (
                'metadata.annotations["modelplane.ai/task-queue"]: must not be empty; '
                "name a task queue or remove the annotation"
            )
        ],
    ),
    ("a separate task queue", annotated(a_cluster(), task_queue="eu-watchtower"), []),
    (
        "a task queue of workflows",
        annotated(a_cluster(), task_queue="modelplane-scheduler"),
        [
            (
                'metadata.annotations["modelplane.ai/task-queue"]: must not be '
                '"modelplane-scheduler", which is the task queue for workflows; '
                "use another name"
            )
        ],
    ),
    (
        "a task queue of one class of work",
        annotated(a_cluster(), task_queue="eu-watch"),
        [
            (
                'metadata.annotations["modelplane.ai/task-queue"]: must not end with "-watch", '
                "which is added for one class of work; use another name"
            )
        ],
    ),
    ("a price", annotated(a_class(), price_per_node_hour="98.32"), []),
    (
        "a price with a currency",
        annotated(a_class(), price_per_node_hour="$98"),
        [
            (
                'metadata.annotations["modelplane.ai/price-per-node-hour"]: must be a '
                'decimal number such as "12.50", got "$98"'
            )
        ],
    ),
    (
        "an address range",
        a_gateway(
            traefik={
                "loadBalancer": "MetalLB",
                "metallb": {"addressPool": "10.0.0.10-10.0.0.20"},
            }
        ),
        [],
    ),
    (
        "an address block",
        a_gateway(
            traefik={
                "loadBalancer": "MetalLB",
                "metallb": {"addressPool": "10.0.0.0/28"},
            }
        ),
        [],
    ),
    (
        "a range that runs backwards",
        a_gateway(
            traefik={
                "loadBalancer": "MetalLB",
                "metallb": {"addressPool": "10.0.0.20-10.0.0.10"},
            }
        ),
        [
            (
                'spec.traefik.metallb.addressPool: must be a range "first-last" or a '
                'CIDR, got "10.0.0.20-10.0.0.10"'
            )
        ],
    ),
    (
        "a range with a zone, which may be any text",
        a_gateway(
            traefik={
                "loadBalancer": "MetalLB",
                "metallb": {"addressPool": "fe80::1%a-fe80::2"},
            }
        ),
        [
            (
                'spec.traefik.metallb.addressPool: must be a range "first-last" or a '
                'CIDR, got "fe80::1%a-fe80::2"'
            )
        ],
    ),
    (
        "a range that is longer than an order takes",
        a_gateway(
            traefik={
                "loadBalancer": "MetalLB",
                "metallb": {"addressPool": f"10.0.0.1-{' ' * 300}10.0.0.2"},
            }
        ),
        [
            (
                'spec.traefik.metallb.addressPool: must be a range "first-last" or a '
                f'CIDR, got "10.0.0.1-{" " * 300}10.0.0.2"'
            )
        ],
    ),
    (
        "a version of a chart that is longer than an order takes",
        a_gateway(traefik={"version": "9" * 300}),
        ["spec.traefik.version: must have at most 253 characters"],
    ),
    ("Envoy with the default chart", an_envoy_gateway(), []),
    (
        "Envoy with addresses of MetalLB, and a later chart",
        an_envoy_gateway(
            version="v1.10.0",
            loadBalancer="MetalLB",
            metallb={"addressPool": "10.0.0.0/28"},
        ),
        [],
    ),
    (
        "a chart of Envoy with an unreadable version",
        an_envoy_gateway(version="main"),
        [],
    ),
    (
        "a chart of Envoy that is too old",
        an_envoy_gateway(version="1.7.9"),
        [
            "spec.envoy.version: must be at least 1.8, got 1.7.9; use v1.8.1, the default"
        ],
    ),
    (
        "a version of a chart of Envoy that is longer than an order takes",
        an_envoy_gateway(version="9" * 300),
        ["spec.envoy.version: must have at most 253 characters"],
    ),
    (
        "a URL without a host",
        an_endpoint(url="not-a-url"),
        ["spec.url: has no host; write it as https://host[:port]/path"],
    ),
    (
        "a port out of range",
        an_endpoint(url="http://h.example:99999"),
        ["spec.url: port must be between 1 and 65535, got 99999"],
    ),
    (
        "port zero",
        an_endpoint(url="https://h.example:0"),
        ["spec.url: port must be between 1 and 65535, got 0"],
    ),
    (
        "credentials in a URL",
        an_endpoint(url="http://user:pw@h.example/"),
        [
            "spec.url: credentials do not belong in a URL; it is stored and shown in plain text"
        ],
    ),
    (
        "topology keys twice",
        a_deployment(
            top={
                "scheduling": {
                    "topologySpread": [{"topologyKey": "zone"}, {"topologyKey": "zone"}]
                }
            }
        ),
        [
            (
                "spec.scheduling.topologySpread[topologyKey=zone]: duplicate "
                "topologyKey; constraint topologyKeys must be unique"
            )
        ],
    ),
    (
        "every optional block",
        a_deployment(
            an_engine(
                a_member(podsPerNode=2, probes={"startupSeconds": 900, "liveness": {}}),
                spanPools=True,
            ),
            top={
                "rollout": {
                    "type": "Rolling",
                    "maxUnavailable": "25%",
                    "maxSurge": 1,
                    "partition": 0,
                    "paused": True,
                },
                "drain": {"maxUnavailable": 1, "deadlineSeconds": 600},
                "scheduling": {
                    "profile": "near",
                    "priorityClassName": "gold",
                    "preemptionPolicy": "LowerPriority",
                    "minAvailable": 1,
                    "topologySpread": [
                        {
                            "topologyKey": "region",
                            "whenUnsatisfiable": "ScheduleAnyway",
                            "minDomains": 2,
                        }
                    ],
                    "affinity": {
                        "preferred": [
                            {
                                "weight": 5,
                                "topologyKey": "region",
                                "selector": {"matchLabels": {"a": "b"}},
                            }
                        ]
                    },
                    "antiAffinity": {
                        "required": [
                            {
                                "selector": {"matchLabels": {"a": "b"}},
                                "namespaces": ["ml"],
                            }
                        ]
                    },
                    "networkDomain": "Required",
                    "gangReplicas": 2,
                    "cacheRequired": "Ready",
                },
            },
        ),
        [],
    ),
]
SAID = {
    "a variable with an empty source": [
        f"{ENV}: set exactly one of secretKeyRef, configMapKeyRef, fieldRef; got none"
    ],
    "a minimum above the maximum": [
        f"{POOL}.minNodeCount: minimum exceeds maximum: 5 is more than maxNodeCount 4"
    ],
    "a region on Nebius": [
        (
            "spec.cluster.nebius.region: unknown field; the project of the "
            "credentials fixes the region on Nebius"
        )
    ],
}


@pytest.mark.parametrize(
    ("story", "document", "want"), CASES, ids=[case[0] for case in CASES]
)
def test_a_rule_rejects_manifests_that_can_never_work_and_no_others(
    story: str, document: dict[str, Any], want: list[str] | None
) -> None:
    assert problems(document) == (SAID[story] if want is None else want)


ABSENT = [
    *(
        (field, "container")
        for field in (
            "ports",
            "volumeMounts",
            "envFrom",
            "livenessProbe",
            "securityContext",
            "workingDir",
            "imagePullPolicy",
        )
    ),
    *(
        (field, "pod")
        for field in (
            "initContainers",
            "volumes",
            "affinity",
            "tolerations",
            "nodeSelector",
            "hostNetwork",
            "serviceAccountName",
        )
    ),
]


@pytest.mark.parametrize(
    ("field", "place"),
    ABSENT,
    ids=[f"{field} of a {place}" for field, place in ABSENT],
)
def test_a_forbidden_pod_field_is_an_unknown_field_with_advice(
    field: str, place: str
) -> None:
    member = (
        a_container(**{field: []})
        if place == "container"
        else a_member(template={"spec": {field: []}})
    )
    (problem,) = problems(a_deployment(an_engine(member)))
    assert f".{field}: unknown field; " in problem


def test_a_resource_field_reference_is_refused_with_its_reason() -> None:
    env = [{"name": "X", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}}]
    assert (
        f"{ENV}.resourceFieldRef: unknown field; the platform sets the "
        "container's resources, so there is nothing to refer to"
    ) in problems(a_deployment(an_engine(a_container(env=env))))


def test_removed_fields_of_a_class_are_reported_with_their_replacement() -> None:
    assert problems(a_class(resources={"gpu": {}})) == [
        "spec.resources: field was removed; describe the hardware of a node in devices[]"
    ]


def test_the_removed_scheduler_field_is_reported_with_its_replacement() -> None:
    (problem,) = problems(a_cluster(scheduler={"type": "KAI"}))
    assert problem == (
        "spec.scheduler: field was removed; set annotation "
        "modelplane.ai/scheduler-type on the InferenceCluster"
    )


def test_a_cluster_without_pools_is_accepted() -> None:
    assert problems(a_cluster(nodePools=CUT)) == []
