"""The endpoint picker of one replica: the process that selects the pod for each request of the gateway."""

import hashlib
from collections.abc import Mapping

from activities.render.engines import tracing
from activities.render.engines.context import Context
from activities.render.objects import components, contract, inventory_keys
from activities.render.objects.manifest import Item, Json, labelled_item
from activities.render.objects.propagation import pull_secrets
from activities.render.routing import picker_config
from api_types import labels, names
from api_types.pins import apiversions
from api_types.validation.picker_flags import platform_flag_problems

GRPC_PORT = 9002
METRICS_PORT = 9090
METRICS_PORT_NAME = "metrics"
TOKEN_KEY = "token"  # noqa: S105 -- the name of a key, not a token
_CONTAINER = "epp"
_WHERE = "endpoint picker"
_HEALTH_PORT = 9003
_READ = ["get", "list", "watch"]
# The time for open streams before it ends.
_TERMINATION_GRACE_SECONDS = 130
_CONFIG_VOLUME = "config"
_CONFIG_PATH = "/config"
_GKE = "gke"
_ISTIO = "istio"

# Of a picker whose metrics need a token: it asks the API server about the tokens, and its own account reads the metrics with one.
METRICS_RULES: tuple[Json, ...] = (
    {"apiGroups": ["authentication.k8s.io"], "resources": ["tokenreviews"], "verbs": ["create"]},
    {"apiGroups": ["authorization.k8s.io"], "resources": ["subjectaccessreviews"], "verbs": ["create"]},
    {"nonResourceURLs": [contract.METRICS_PATH], "verbs": ["get"]},
)


def rbac(context: Context, *, monitored: bool) -> list[Item]:
    """Give the picker's ServiceAccount and RBAC. `monitored`: Prometheus scrapes it, so that with metrics auth on a token is needed."""
    items = [_service_account(context), _role(context), _role_binding(context)]
    if context.settings.epp_metrics_auth:
        items += [_cluster_role(context), _cluster_role_binding(context)]
        if monitored and context.facts.mesh_provider != _GKE:
            items.append(_token(context))
    return items


def workload(context: Context) -> list[Item]:
    """Give the picker's configuration, Service and Deployment, and what a mesh must know about it."""
    text = picker_config.config_text(context)
    mesh = [_destination_rule(context)] if context.facts.mesh_provider == _ISTIO else []
    return [_config_map(context, text), _service(context), *mesh, _deployment(context, text)]


def metrics_token(context: Context) -> str:
    """Name the Secret that Prometheus reads its token from; empty where scraping needs none."""
    needed = context.settings.epp_metrics_auth and context.facts.mesh_provider != _GKE
    return names.metrics_token_name(context.picker) if needed else ""


def _item(context: Context, key: str, manifest: Json, annotations: Mapping[str, str] | None = None) -> Item:
    return labelled_item(context.owner, key, components.PICKER, manifest, extra_annotations=annotations)


def _selector(context: Context) -> dict[str, str]:
    return {names.PICKER_LABEL: context.picker}


def _service_account(context: Context) -> Item:
    manifest = {"apiVersion": apiversions.CORE, "kind": "ServiceAccount", "metadata": context.metadata(context.picker)}
    return _item(context, f"{inventory_keys.PICKER}-serviceaccount", manifest)


def role_rules(replicas: int) -> list[Json]:
    """Give the rules of the Role of a picker with so many replicas."""
    configuration = ["inferenceobjectives", "inferencemodelrewrites"]
    rules: list[Json] = [
        {"apiGroups": [""], "resources": ["pods"], "verbs": _READ},
        {"apiGroups": [apiversions.INFERENCE_GROUP], "resources": ["inferencepools"], "verbs": _READ},
        {"apiGroups": [apiversions.INFERENCE_EXPERIMENTAL_GROUP, apiversions.LLM_D_GROUP], "resources": configuration, "verbs": _READ},
    ]
    if replicas > 1:
        every = ["get", "list", "watch", "create", "update", "patch", "delete"]
        rules += [
            {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": every},
            {"apiGroups": [""], "resources": ["events"], "verbs": ["create", "patch"]},
        ]
    return rules


def _role(context: Context) -> Item:
    rules = role_rules(context.settings.epp_replicas)
    manifest = {"apiVersion": apiversions.RBAC, "kind": "Role", "metadata": context.metadata(context.picker), "rules": rules}
    return _item(context, f"{inventory_keys.PICKER}-role", manifest)


def _binding(context: Context, kind: str, role_kind: str, metadata: Json) -> Json:
    return {
        "apiVersion": apiversions.RBAC,
        "kind": kind,
        "metadata": metadata,
        "roleRef": {"apiGroup": apiversions.RBAC.partition("/")[0], "kind": role_kind, "name": context.picker},
        "subjects": [{"kind": "ServiceAccount", "name": context.picker, "namespace": context.namespace}],
    }


def _role_binding(context: Context) -> Item:
    return _item(
        context, f"{inventory_keys.PICKER}-rolebinding", _binding(context, "RoleBinding", "Role", context.metadata(context.picker))
    )


def _cluster_role(context: Context) -> Item:
    rules = [dict(rule) for rule in METRICS_RULES]
    manifest = {"apiVersion": apiversions.RBAC, "kind": "ClusterRole", "metadata": {"name": context.picker}, "rules": rules}
    return _item(context, f"{inventory_keys.PICKER}-clusterrole", manifest)


def _cluster_role_binding(context: Context) -> Item:
    manifest = _binding(context, "ClusterRoleBinding", "ClusterRole", {"name": context.picker})
    return _item(context, f"{inventory_keys.PICKER}-clusterrolebinding", manifest)


def _token(context: Context) -> Item:
    manifest = {
        "apiVersion": apiversions.CORE,
        "kind": "Secret",
        "type": "kubernetes.io/service-account-token",
        "metadata": context.metadata(metrics_token(context)),
    }
    return _item(context, f"{inventory_keys.PICKER}-metrics-token", manifest, {"kubernetes.io/service-account.name": context.picker})


def _config_map(context: Context, text: str) -> Item:
    manifest = {
        "apiVersion": apiversions.CORE,
        "kind": "ConfigMap",
        "metadata": context.metadata(context.picker),
        "data": {picker_config.FILE: text},
    }
    return _item(context, f"{inventory_keys.PICKER}-config", manifest)


def _service(context: Context) -> Item:
    manifest = {
        "apiVersion": apiversions.CORE,
        "kind": "Service",
        "metadata": context.metadata(context.picker),
        "spec": {
            "selector": _selector(context),
            "ports": [
                {"name": "grpc-ext-proc", "port": GRPC_PORT, "targetPort": GRPC_PORT, "appProtocol": "http2"},
                {"name": METRICS_PORT_NAME, "port": METRICS_PORT, "targetPort": METRICS_PORT},
            ],
        },
    }
    return _item(context, f"{inventory_keys.PICKER}-service", manifest)


def _arguments(context: Context) -> list[str]:
    settings = context.settings
    own = {
        "--pool-name": context.pool,
        "--pool-namespace": context.namespace,
        "--pool-group": apiversions.INFERENCE_GROUP,
        "--config-file": f"{_CONFIG_PATH}/{picker_config.FILE}",
        "--grpc-port": str(GRPC_PORT),
        "--zap-encoder": "json",
        # Both are on by default in the binary.
        "--tracing": "true" if settings.tracing_enabled else "false",
        **({} if settings.epp_metrics_auth else {"--metrics-endpoint-auth": "false"}),
        **({"--ha-enable-leader-election": "true"} if settings.epp_replicas > 1 else {}),
    }
    for problem in platform_flag_problems(context.replica.picker_flags):
        context.findings.problem(_WHERE, problem)
    wanted, given = _by_flag(context.replica.picker_flags), _by_flag(settings.epp_extra_flags)
    for name in sorted(given.keys() & own.keys()):
        context.findings.problem(_WHERE, f"flag {name} is set by the platform and cannot be given again")
    for name in sorted(given.keys() & wanted.keys()):
        if wanted[name] != given[name]:
            text = f"flag {name}={wanted[name]} of {labels.PICKER_FLAGS} has no effect: the setting epp.extraFlags has {given[name]!r}"
            context.findings.warn(_WHERE, text)
    return [f"{name}={value}" for name, value in (*own.items(), *sorted({**wanted, **given}.items()))]


def _by_flag(flags: Mapping[str, str]) -> dict[str, str]:
    return {f"--{name.lstrip('-')}": value for name, value in flags.items()}


def _environment(context: Context) -> list[Json]:
    variables: list[Json] = [
        {"name": "NAMESPACE", "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}}},
        {"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
    ]
    if context.settings.tracing_enabled:
        variables += tracing.environment(context.settings, "modelplane-epp") + tracing.pod_attributes()
    return variables


def _container(context: Context) -> Json:
    alone = context.settings.epp_replicas == 1
    return {
        "name": _CONTAINER,
        "image": context.settings.epp_image,
        "args": _arguments(context),
        "env": _environment(context),
        "ports": [
            {"name": "grpc", "containerPort": GRPC_PORT},
            {"name": "grpc-health", "containerPort": _HEALTH_PORT},
            {"name": METRICS_PORT_NAME, "containerPort": METRICS_PORT},
        ],
        "readinessProbe": {
            "grpc": {"port": _HEALTH_PORT, "service": "inference-extension" if alone else "readiness"},
            "periodSeconds": 2,
        },
        "livenessProbe": {
            "grpc": {"port": _HEALTH_PORT, "service": "inference-extension" if alone else "liveness"},
            "initialDelaySeconds": 5,
            "periodSeconds": 10,
        },
        "resources": {"requests": {"cpu": "500m", "memory": "1Gi"}, "limits": {"memory": "4Gi"}},
        "securityContext": contract.restricted(),
        "volumeMounts": [{"name": _CONFIG_VOLUME, "mountPath": _CONFIG_PATH, "readOnly": True}],
    }


def _deployment(context: Context, text: str) -> Item:
    # The picker reads its file once: a changed text must roll the pod, an unchanged one must not.
    checksum = hashlib.sha256(text.encode()).hexdigest()
    manifest = {
        "apiVersion": apiversions.APPS,
        "kind": "Deployment",
        "metadata": context.metadata(context.picker),
        "spec": {
            "replicas": context.settings.epp_replicas,
            "selector": {"matchLabels": _selector(context)},
            "strategy": {"type": "Recreate"},
            "template": {
                "metadata": {"labels": _selector(context), "annotations": {labels.EPP_CONFIG_CHECKSUM: checksum}},
                "spec": {
                    **({"imagePullSecrets": pull} if (pull := pull_secrets(context.settings)) else {}),
                    "serviceAccountName": context.picker,
                    "terminationGracePeriodSeconds": _TERMINATION_GRACE_SECONDS,
                    "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
                    "containers": [_container(context)],
                    "volumes": [{"name": _CONFIG_VOLUME, "configMap": {"name": context.picker}}],
                },
            },
        },
    }
    return _item(context, inventory_keys.PICKER, manifest, context.picker_annotations())


def _destination_rule(context: Context) -> Item:
    # The picker serves gRPC behind a certificate that it signed itself; without this an Istio sidecar would speak plain text to it.
    manifest = {
        "apiVersion": apiversions.DESTINATION_RULE,
        "kind": "DestinationRule",
        "metadata": context.metadata(context.picker),
        "spec": {
            "host": f"{context.picker}.{context.namespace}.svc.cluster.local",
            "trafficPolicy": {"tls": {"mode": "SIMPLE", "insecureSkipVerify": True}},
        },
    }
    return _item(context, f"{inventory_keys.PICKER}-destinationrule", manifest)
