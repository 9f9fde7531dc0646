"""One rendered set per topology that users run.

The golden files and the tests on real API servers share them.
"""

import json
from collections.abc import Callable
from typing import Any

from activities.render.cache.volumes import render_cache
from activities.render.inputs.facts import CacheInput
from activities.render.inputs.settings import RenderSettings
from activities.render.objects.rendered import Rendered
from api_types.messages.cluster_work import CacheMount, NodeLocal
from api_types.pins import apiversions
from tests.activities.render.builders import (
    CLAIM,
    GPU,
    a_cluster,
    a_gang,
    a_member,
    a_pair,
    an_engine,
    render,
    render_pair,
)

CEL = 'device.capacity["gpu.nvidia.com"].memory.compareTo(quantity("80Gi")) >= 0'
UID = "00000000-0000-0000-0000-000000000000"


def _standalone() -> Rendered:
    gpu = {**GPU, "selectors": [{"cel": CEL}]}
    efa = {"name": "efa", "deviceClassName": "efa.networking.k8s.aws", "count": 16}
    token = {
        "name": "HF_TOKEN",
        "valueFrom": {
            "secretKeyRef": {"name": "hub", "key": "token", "optional": True}
        },
    }
    member = a_member(
        requests=[gpu, efa],
        args=["--served-model-name=support", "--block-size=32"],
        env=[token],
        pull_secrets=["acme-registry"],
        labels={"acme.example/team": "support"},
    )
    return render(
        an_engine("main", member, copies=2), cache="qwen", cache_claim=CLAIM, uid=UID
    )


def _gang() -> Rendered:
    leader = {"args": ["--tensor-parallel-size=8"], "pool": "head"}
    return render(
        a_gang(leader=leader, worker={"command": ["join"]}, copies=2),
        cache="qwen",
        cache_claim=CLAIM,
        uid=UID,
    )


def _prefill_decode() -> Rendered:
    return render_pair(
        decode={"args": ["--port=8200"]}, cache="qwen", cache_claim=CLAIM, uid=UID
    )


# A policy that namespaces with Pod Security `baseline` admit, without a RuntimeClass,
# which clusters of the testbed lack.
POLICY: dict[str, object] = {
    "hugepages": [{"size": "2Mi", "amount": "4Gi"}, {"size": "1Gi", "amount": "2Gi"}],
    "env": [
        {"name": "NCCL_IB_HCA", "value": "mlx5"},
        {"name": "UCX_TLS", "value": "rc,cuda"},
    ],
    "resources": {
        "requests": {"cpu": "16", "memory": "64Gi", "ephemeral-storage": "20Gi"},
        "limits": {"cpu": "64", "memory": "512Gi", "ephemeral-storage": "100Gi"},
    },
    "rdma": [
        {"resourceName": "rdma/hca_shared_devices_a"},
        {"resourceName": "rdma/hca_shared_devices_b", "count": 2},
    ],
    "seccomp": {"type": "Localhost", "localhostProfile": "profiles/engine.json"},
    "shmSize": "64Gi",
    "tolerations": [
        {"key": "acme.example/rdma"},
        {
            "key": "acme.example/owner",
            "operator": "Equal",
            "value": "ml",
            "effect": "NoExecute",
        },
    ],
    "serviceAccountName": "engines",
}


PRIVILEGED = "pod-policy-privileged"


def _granted() -> Rendered:
    cluster = a_cluster(pod_policies={"h100": POLICY})
    return render(
        a_gang(leader={"pool": "head"}), an_engine("small"), cluster=cluster, uid=UID
    )


def _granted_more() -> Rendered:
    """A policy that neither `baseline` nor the clusters of the testbed support."""
    cluster = a_cluster(
        pod_policies={
            "h100": {
                "capabilities": ["IPC_LOCK", "SYS_PTRACE"],
                "runtimeClassName": "nvidia",
                "resources": {
                    "device": "gpu.nvidia.com",
                    "requests": {"cpu": "4", "memory": "32Gi"},
                },
            }
        }
    )
    return render(an_engine(), cluster=cluster, uid=UID)


def _probed() -> Rendered:
    probes = {"startupSeconds": 2700, "liveness": {"failureThreshold": 10}}
    gang = a_gang(leader={"args": ["--tp=8"]})
    leader, worker = gang["members"]
    return render(
        {**gang, "members": [{**leader, "probes": probes}, worker]},
        an_engine("small", {**a_member(), "probes": {}}),
        uid=UID,
    )


def _kai_explicit() -> Rendered:
    cluster = a_cluster(scheduler_type="kai", mesh_provider="istio")
    return render(
        a_gang(),
        cluster=cluster,
        settings={
            "kai_mode": "explicit",
            "epp_metrics_auth": True,
            "tracing_enabled": True,
        },
        uid=UID,
    )


def _drained(*engines: dict[str, Any], mode: str = "") -> Rendered:
    drained = [
        {**engine, "copies": 3, "drain": {"preStopSeconds": 30, "graceSeconds": 600}}
        for engine in engines
    ]
    spec = {
        "clusterName": "eu-1",
        "engines": drained,
        "disruption": {"minAvailable": "50%"},
    }
    return render(spec=spec | ({"serving": {"mode": mode}} if mode else {}), uid=UID)


def _close_gang() -> Rendered:
    """Return a gang alone in its rack, with NVLink memory shared between nodes.

    Each GPU is next to its network card.
    """
    rack = {"nodeLabel": "topology.acme.example/rack", "exclusive": True}
    beside = {
        "matchAttribute": "resource.kubernetes.io/pcieRoot",
        "requests": ["gpu", "nic"],
    }
    topology = {
        "domain": rack,
        "deviceConstraints": [beside],
        "computeDomain": {"channels": "All"},
    }
    nic = {"name": "nic", "deviceClassName": "rdma.acme.example", "count": 8}
    member = {"requests": [GPU, nic]}
    cluster = a_cluster(apis=sorted({*apiversions.STACK, apiversions.COMPUTE_DOMAIN}))
    return render(
        a_gang(leader=member, worker=member, copies=2, topology=topology),
        cluster=cluster,
        uid=UID,
    )


def _adapted() -> Rendered:
    adapters = [
        {"name": "support", "modelCacheRef": {"name": "support-lora"}, "load": "VLLM"},
        {"name": "sales", "modelCacheRef": {"name": "sales-lora"}, "load": "VLLM"},
        {"name": "later", "modelCacheRef": {"name": "later-lora"}},
    ]
    claims = {
        f"{adapter['name']}-lora": f"modelcache-ml-team-{adapter['name']}-0a1b2c3d"
        for adapter in adapters
    }
    gang = a_gang("big", leader={"args": ["--max-lora-rank=32"]}, adapters=adapters)
    return render(
        an_engine(adapters=adapters),
        gang,
        cache="qwen",
        cache_claim=CLAIM,
        adapter_claims=claims,
        uid=UID,
    )


def _renamed(api: str) -> Rendered:
    """Return an adapter with public names."""
    names = ["acme/support", "support:2026"]
    engine = an_engine(
        adapters=[
            {
                "name": "support",
                "modelCacheRef": {"name": "support-lora"},
                "load": "VLLM",
                "modelNames": names,
            }
        ]
    )
    cluster = a_cluster(apis=sorted({*apiversions.STACK, api}))
    return render(
        engine,
        cache="qwen",
        cache_claim=CLAIM,
        adapter_claims={"support-lora": CLAIM},
        cluster=cluster,
        uid=UID,
    )


def _pulled() -> Rendered:
    """Return a gang with a model and an adapter in images."""
    mounts = {
        name: CacheMount(
            image=f"registry.acme.example/{name}@sha256:{'ab' * 32}", pull_secret=name
        )
        for name in ("qwen", "lora")
    }
    gang = a_gang(adapters=[{"name": "support", "modelCacheRef": {"name": "lora"}}])
    return render(
        gang,
        cache="qwen",
        cache_claim=CLAIM,
        adapter_claims={"lora": "lora"},
        mounts=mounts,
        uid=UID,
    )


def _precise() -> Rendered:
    """Return a replica whose picker follows the KV events of two copies."""
    topic = {
        "enable_kv_cache_events": True,
        "publisher": "zmq",
        "endpoint": "tcp://*:5557",
        "topic": "kv@$(POD_IP):8000@acme/qwen",
    }
    address = {
        "name": "POD_IP",
        "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}},
    }
    member = a_member(
        args=["--block-size=64", "--kv-events-config", json.dumps(topic)], env=[address]
    )
    cache = {
        "mode": "Precise",
        "modelName": "acme/qwen",
        "tokenizerUrl": "http://render.ml-team.svc:8000",
    }
    return render(
        spec={
            "clusterName": "eu-1",
            "engines": [an_engine("main", member, copies=2)],
            "serving": {"prefixCache": cache},
        },
        uid=UID,
    )


def _tuned() -> Rendered:
    """Return a replica with the pod, probe and picker fields that others lack."""
    port = {"configMapKeyRef": {"name": "tuning", "key": "port", "optional": True}}
    address = {"fieldRef": {"apiVersion": "v1", "fieldPath": "status.podIP"}}
    env = [
        {"name": "NCCL_DEBUG", "value": "WARN"},
        {"name": "TUNING_PORT", "valueFrom": port},
        {"name": "POD_IP", "valueFrom": address},
    ]
    topic = {
        "enable_kv_cache_events": True,
        "publisher": "zmq",
        "endpoint": "tcp://*:5600",
        "topic": "kv@$(POD_IP):8000@acme/qwen",
    }
    args = ["--block-size=64", "--kv-events-config", json.dumps(topic)]
    member = a_member(
        args=args, env=env, annotations={"acme.example/contact": "ml-team"}
    )
    probes = {
        "startupSeconds": 900,
        "liveness": {"periodSeconds": 20, "timeoutSeconds": 10, "failureThreshold": 3},
    }
    cache = {
        "mode": "Precise",
        "modelName": "acme/qwen",
        "tokenizerUrl": "http://render.ml-team.svc:8000",
        "eventsPort": 5600,
    }
    engine = an_engine("main", {**member, "podsPerNode": 2, "probes": probes}, copies=2)
    return render(
        spec={
            "clusterName": "eu-1",
            "engines": [engine],
            "serving": {"prefixCache": cache},
        },
        uid=UID,
    )


def node_local(**spec: Any) -> CacheMount:
    """Return a cache with a volume per pod, for a gated repository behind a proxy.

    Its certificate authorities are in a ConfigMap.
    """
    block = {"repo": "Qwen/Qwen3-8B", "sizeGiB": 20, "authSecret": {"name": "hub"}}
    hydration = {
        "proxy": {"urlSecret": {"name": "proxy", "key": "url"}},
        "caBundle": {"configMapKeyRef": {"name": "company-ca", "key": "bundle.pem"}},
        "imagePullSecrets": [{"name": "mirror"}],
    }
    volume = {"nodeLocal": True, "storageClassName": "local-nvme"}
    content = {
        "source": "HuggingFace",
        "huggingFace": block,
        "volume": volume,
        "hydration": hydration,
        **spec,
    }
    commit = "0123456789abcdef0123456789abcdef01234567"
    return CacheMount(
        node_local=NodeLocal(
            spec=content, revision=commit, storage_class_name="local-nvme", size_gib=20
        )
    )


def _node_local() -> Rendered:
    settings = {"pull_secrets": ("company-registry",)}
    return render_pair(
        cache="qwen",
        cache_claim=CLAIM,
        mounts={"qwen": node_local()},
        settings=settings,
        uid=UID,
    )


def _node_local_gang() -> Rendered:
    oci = {
        "image": "registry.acme.example/models/qwen:1.0",
        "sizeGiB": 40,
        "pullSecret": "registry",
        "scratch": "node",
    }
    mount = node_local(source="OCI", oci=oci)
    own = mount.node_local
    pinned = mount.model_copy(
        update={
            "node_local": own
            and own.model_copy(update={"revision": "sha256:" + "ab" * 32})
        }
    )
    return render(
        a_gang(), cache="qwen", cache_claim=CLAIM, mounts={"qwen": pinned}, uid=UID
    )


def _profiled() -> Rendered:
    profile = {
        "name": "Custom",
        "port": 9000,
        "healthPath": "/v1/models",
        "metricsPath": "/stats/prometheus",
        "metricsPort": 9001,
        "modelFlag": "--weights",
        "leaderPort": 9002,
    }
    gang = a_gang(profile=profile, dataParallel={"size": 4, "loadBalancing": "Hybrid"})
    return render(gang, cache="qwen", cache_claim=CLAIM, uid=UID)


def _wide() -> Rendered:
    engines = [{**engine, "dataParallel": {"size": 8}} for engine in a_pair()]
    serving = {
        "mode": "PrefillDecode",
        "flowControl": {"maxRequests": 500, "queueSeconds": 30},
    }
    return render(
        spec={"clusterName": "eu-1", "engines": engines, "serving": serving}, uid=UID
    )


def _gang_in_domain(scheduler: str, mode: str, **settings: object) -> Rendered:
    domain = {
        "nodeLabel": "topology.acme.example/rack",
        "mode": mode,
        "topologyName": "racks",
    }
    return render(
        a_gang(topology={"domain": domain}),
        cluster=a_cluster(scheduler_type=scheduler),
        settings=settings,
        uid=UID,
    )


def _cache(spec: dict[str, object], revision: str) -> Rendered:
    cache = CacheInput("ml-team", "qwen", UID, 1, "eu-1", spec, revision)
    return render_cache(
        cache, a_cluster(storage_class_name="modelplane-rwx"), RenderSettings()
    )


def _hub_cache() -> Rendered:
    block = {"repo": "Qwen/Qwen3-8B", "sizeGiB": 20, "authSecret": {"name": "hub"}}
    return _cache(
        {"source": "HuggingFace", "huggingFace": block},
        "0123456789abcdef0123456789abcdef01234567",
    )


def _hub_cache_of_some_files() -> Rendered:
    """Return a cache of some files of a branch.

    It uses a key of the token's Secret, and authorities in a Secret.
    """
    token = {"name": "hub", "key": "token"}
    files = {
        "allowPatterns": ["*.safetensors", "*.json"],
        "ignorePatterns": ["original/*"],
    }
    block = {
        "repo": "Qwen/Qwen3-8B",
        "revision": "main",
        "sizeGiB": 20,
        "authSecret": token,
        **files,
    }
    hydration = {
        "caBundle": {"secretKeyRef": {"name": "company-ca", "key": "bundle.pem"}}
    }
    return _cache(
        {"source": "HuggingFace", "huggingFace": block, "hydration": hydration}, ""
    )


def _oci_cache() -> Rendered:
    block = {
        "image": "registry.acme.example/models/qwen:1.0",
        "sizeGiB": 40,
        "pullSecret": "registry",
        "scratch": "node",
    }
    return _cache({"source": "OCI", "oci": block}, "sha256:" + "ab" * 32)


HYDRATION: dict[str, Any] = {
    "caBundle": {"configMapKeyRef": {"name": "company-ca", "key": "bundle.pem"}},
    "imagePullSecrets": [{"name": "mirror"}],
    "serviceAccountName": "model-reader",
    "tolerations": [
        {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"},
        {"key": "team", "value": "ml"},
    ],
}


def _hub_cache_behind_a_proxy() -> Rendered:
    block = {"repo": "Qwen/Qwen3-8B", "sizeGiB": 20, "authSecret": {"name": "hub"}}
    proxy = {
        "http": "http://proxy.acme.example:3128",
        "https": "http://proxy.acme.example:3128",
        "noProxy": [".svc", "10.0.0.0/8"],
    }
    hydration = {**HYDRATION, "proxy": proxy, "timeoutSeconds": 60, "disableXet": True}
    return _cache(
        {"source": "HuggingFace", "huggingFace": block, "hydration": hydration},
        "0123456789abcdef0123456789abcdef01234567",
    )


def _oci_cache_behind_a_proxy() -> Rendered:
    block = {
        "image": "registry.acme.example/models/qwen:1.0",
        "sizeGiB": 40,
        "pullSecret": "registry",
    }
    hydration = {**HYDRATION, "proxy": {"urlSecret": {"name": "proxy", "key": "url"}}}
    return _cache(
        {"source": "OCI", "oci": block, "hydration": hydration}, "sha256:" + "ab" * 32
    )


def _s3_cache() -> Rendered:
    block = {
        "endpoint": "https://storage.googleapis.com",
        "bucket": "acme-models",
        "prefix": "qwen",
        "sizeGiB": 40,
    }
    volume = {"accessMode": "ReadWriteOnce", "storageClassName": "fast-ssd"}
    spec: dict[str, object] = {
        "source": "S3",
        "s3": {**block, "pathStyle": True, "authSecret": {"name": "bucket"}},
        "volume": volume,
    }
    return _cache(spec, "sha256:" + "cd" * 32)


TOPOLOGIES: dict[str, Callable[[], Rendered]] = {
    "standalone": _standalone,
    "standalone-service": lambda: render(
        cluster=a_cluster(routing="service", dra_version="v1beta1"), uid=UID
    ),
    "standalone-kueue": lambda: render(
        cluster=a_cluster(scheduler_type="kueue"), uid=UID
    ),
    "device-plugin": lambda: render(
        an_engine(
            "main",
            a_member(
                requests=[
                    {"name": "gaudi", "resourceName": "habana.ai/gaudi", "count": 8}
                ]
            ),
        ),
        cluster=a_cluster(dra_version=""),
        uid=UID,
    ),
    "gang": _gang,
    "gang-kai-explicit": _kai_explicit,
    "adapters": _adapted,
    "adapters-renamed": lambda: _renamed(apiversions.MODEL_REWRITES[0]),
    "adapters-renamed-older": lambda: _renamed(apiversions.MODEL_REWRITES[1]),
    "gang-close": _close_gang,
    "gang-domain": lambda: _gang_in_domain("none", "Required"),
    "gang-domain-preferred": lambda: _gang_in_domain("none", "Preferred"),
    "gang-domain-kueue": lambda: _gang_in_domain("kueue", "Required"),
    "gang-domain-kai": lambda: _gang_in_domain("kai", "Preferred"),
    "gang-domain-kai-explicit": lambda: _gang_in_domain(
        "kai", "Required", kai_mode="explicit"
    ),
    "gang-image": _pulled,
    "gang-node-local": _node_local_gang,
    "prefill-decode-node-local": _node_local,
    "probes": _probed,
    "precise": _precise,
    "wide": _wide,
    "profiled": _profiled,
    "tuned": _tuned,
    "pod-policy": _granted,
    PRIVILEGED: _granted_more,
    "prefill-decode": _prefill_decode,
    "prefill-decode-old-cluster": lambda: render_pair(
        cluster=a_cluster(kubernetes_version="1.28", dra_version="v1beta1"), uid=UID
    ),
    "drained": lambda: _drained(an_engine(), a_gang("big")),
    "drained-prefill-decode": lambda: _drained(*a_pair(), mode="PrefillDecode"),
    "cache-huggingface": _hub_cache,
    "cache-huggingface-files": _hub_cache_of_some_files,
    "cache-oci": _oci_cache,
    "cache-huggingface-behind-a-proxy": _hub_cache_behind_a_proxy,
    "cache-oci-behind-a-proxy": _oci_cache_behind_a_proxy,
    "cache-s3": _s3_cache,
}
