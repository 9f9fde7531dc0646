"""The endpoint picker of one replica: it selects the pod for each gateway request.

The gateway holds one stream to a picker for the whole duration of a request, so a
picker that ends cuts the requests that it has handled. A new picker therefore starts
before an old one stops. The old one leaves the Service at once and sleeps until its
requests have ended. The Service is headless: the gateway resolves the addresses of the
pickers itself and moves new requests to the new one. Behind a cluster address it would
keep its connection to the old one.

All pickers of a replica serve. With the picker's leader election only the leader is
ready, so a rolling update could not replace it before it stops.
"""

import hashlib
from collections.abc import Mapping

from activities.render.engines import tracing
from activities.render.engines.context import Context
from activities.render.engines.disruption import SLEEP_SINCE
from activities.render.engines.pods import own_metrics_port
from activities.render.inputs.settings import RenderSettings
from activities.render.objects import components, contract, inventory_keys
from activities.render.objects.manifest import (
    Json,
    RenderedObject,
    compact,
    labelled_item,
)
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
# The time in which a picker stops after SIGTERM: by default it drains for 30 s and then
# ends its streams within 30 s.
_SHUTDOWN_SECONDS = 75
# Gateways resolve the addresses of pickers every 5 s, from a DNS server that may cache
# them for 30 s.
_RESOLVED_SECONDS = 40
_CONFIG_VOLUME = "config"
_CONFIG_PATH = "/config"
_GKE = "gke"
_ISTIO = "istio"

# The rules of a picker whose metrics require a token. The picker uses the API server to
# review tokens, and Prometheus reads the metrics with a token of the picker's account.
METRICS_RULES: tuple[Json, ...] = (
    {
        "apiGroups": ["authentication.k8s.io"],
        "resources": ["tokenreviews"],
        "verbs": ["create"],
    },
    {
        "apiGroups": ["authorization.k8s.io"],
        "resources": ["subjectaccessreviews"],
        "verbs": ["create"],
    },
    {"nonResourceURLs": [contract.METRICS_PATH], "verbs": ["get"]},
)


def rbac(context: Context, *, monitored: bool) -> list[RenderedObject]:
    """Return the picker's ServiceAccount and RBAC objects.

    `monitored` means that Prometheus scrapes the picker. It then needs a token if
    metrics require authentication.
    """
    items = [_service_account(context), _role(context), _role_binding(context)]
    if context.settings.epp_metrics_auth:
        items += [_cluster_role(context), _cluster_role_binding(context)]
        if monitored and context.facts.mesh_provider != _GKE:
            items.append(_token(context))
    return items


def workload(context: Context) -> list[RenderedObject]:
    """Return the picker's configuration, Service, Deployment, budget and mesh rule."""
    text = picker_config.config_text(context)
    items = [_config_map(context, text), _service(context)]
    if context.facts.mesh_provider == _ISTIO:
        items.append(_destination_rule(context))
    if context.settings.epp_replicas > 1:
        items.append(_budget(context))
    return [*items, _deployment(context, text)]


def service_name(context: Context) -> str:
    """Return the name of the Service through which the gateway finds the pickers."""
    return names.picker_service_name(context.picker)


def metrics_token(context: Context) -> str:
    """Return the name of the Secret with Prometheus' token, or "" if it needs none."""
    needed = context.settings.epp_metrics_auth and context.facts.mesh_provider != _GKE
    return names.metrics_token_name(context.picker) if needed else ""


def _item(
    context: Context,
    key: str,
    manifest: Json,
    annotations: Mapping[str, str] | None = None,
) -> RenderedObject:
    return labelled_item(
        context.owner, key, components.PICKER, manifest, extra_annotations=annotations
    )


def _selector(context: Context) -> dict[str, str]:
    return {names.PICKER_LABEL: context.picker}


def _service_account(context: Context) -> RenderedObject:
    manifest = {
        "apiVersion": apiversions.CORE,
        "kind": "ServiceAccount",
        "metadata": context.metadata(context.picker),
    }
    return _item(context, f"{inventory_keys.PICKER}-serviceaccount", manifest)


def role_rules() -> list[Json]:
    """Return the rules of the Role of a picker."""
    configuration = ["inferenceobjectives", "inferencemodelrewrites"]
    return [
        {"apiGroups": [""], "resources": ["pods"], "verbs": _READ},
        {
            "apiGroups": [apiversions.INFERENCE_GROUP],
            "resources": ["inferencepools"],
            "verbs": _READ,
        },
        {
            "apiGroups": [
                apiversions.INFERENCE_EXPERIMENTAL_GROUP,
                apiversions.LLM_D_GROUP,
            ],
            "resources": configuration,
            "verbs": _READ,
        },
    ]


def _role(context: Context) -> RenderedObject:
    manifest = {
        "apiVersion": apiversions.RBAC,
        "kind": "Role",
        "metadata": context.metadata(context.picker),
        "rules": role_rules(),
    }
    return _item(context, f"{inventory_keys.PICKER}-role", manifest)


def _binding(context: Context, kind: str, role_kind: str, metadata: Json) -> Json:
    return {
        "apiVersion": apiversions.RBAC,
        "kind": kind,
        "metadata": metadata,
        "roleRef": {
            "apiGroup": apiversions.RBAC.partition("/")[0],
            "kind": role_kind,
            "name": context.picker,
        },
        "subjects": [
            {
                "kind": "ServiceAccount",
                "name": context.picker,
                "namespace": context.namespace,
            }
        ],
    }


def _role_binding(context: Context) -> RenderedObject:
    return _item(
        context,
        f"{inventory_keys.PICKER}-rolebinding",
        _binding(context, "RoleBinding", "Role", context.metadata(context.picker)),
    )


def _cluster_role(context: Context) -> RenderedObject:
    rules = [dict(rule) for rule in METRICS_RULES]
    manifest = {
        "apiVersion": apiversions.RBAC,
        "kind": "ClusterRole",
        "metadata": {"name": context.picker},
        "rules": rules,
    }
    return _item(context, f"{inventory_keys.PICKER}-clusterrole", manifest)


def _cluster_role_binding(context: Context) -> RenderedObject:
    manifest = _binding(
        context, "ClusterRoleBinding", "ClusterRole", {"name": context.picker}
    )
    return _item(context, f"{inventory_keys.PICKER}-clusterrolebinding", manifest)


def _token(context: Context) -> RenderedObject:
    manifest = {
        "apiVersion": apiversions.CORE,
        "kind": "Secret",
        "type": "kubernetes.io/service-account-token",
        "metadata": context.metadata(metrics_token(context)),
    }
    return _item(
        context,
        f"{inventory_keys.PICKER}-metrics-token",
        manifest,
        {"kubernetes.io/service-account.name": context.picker},
    )


def _config_map(context: Context, text: str) -> RenderedObject:
    manifest = {
        "apiVersion": apiversions.CORE,
        "kind": "ConfigMap",
        "metadata": context.metadata(context.picker),
        "data": {picker_config.FILE: text},
    }
    return _item(context, f"{inventory_keys.PICKER}-config", manifest)


def _service(context: Context) -> RenderedObject:
    manifest = {
        "apiVersion": apiversions.CORE,
        "kind": "Service",
        "metadata": context.metadata(service_name(context)),
        "spec": {
            "clusterIP": "None",
            "selector": _selector(context),
            "ports": [
                {
                    "name": "grpc-ext-proc",
                    "port": GRPC_PORT,
                    "targetPort": GRPC_PORT,
                    "appProtocol": "http2",
                },
                {
                    "name": METRICS_PORT_NAME,
                    "port": METRICS_PORT,
                    "targetPort": METRICS_PORT,
                },
            ],
        },
    }
    return _item(context, f"{inventory_keys.PICKER}-service", manifest)


def _platform_flags(context: Context) -> dict[str, str]:
    settings = context.settings
    flags = {
        "--pool-name": context.pool,
        "--pool-namespace": context.namespace,
        "--pool-group": apiversions.INFERENCE_GROUP,
        "--config-file": f"{_CONFIG_PATH}/{picker_config.FILE}",
        "--grpc-port": str(GRPC_PORT),
        "--zap-encoder": "json",
        # The binary enables metrics authentication and tracing by default.
        "--tracing": "true" if settings.tracing_enabled else "false",
    }
    if port := own_metrics_port(context.spec.picker_engine):
        flags["--model-server-metrics-port"] = str(port)
    if not settings.epp_metrics_auth:
        flags["--metrics-endpoint-auth"] = "false"
    return flags


def _arguments(context: Context) -> list[str]:
    own = _platform_flags(context)
    for problem in platform_flag_problems(context.replica.picker_flags):
        context.findings.problem(_WHERE, problem)
    wanted = _by_flag(context.replica.picker_flags)
    given = _by_flag(context.settings.epp_extra_flags)
    for name in sorted(given.keys() & own.keys()):
        context.findings.problem(
            _WHERE, f"flag {name} is set by the platform and cannot be given again"
        )
    for name in sorted(given.keys() & wanted.keys()):
        if wanted[name] != given[name]:
            text = (
                f"flag {name}={wanted[name]} of {labels.PICKER_FLAGS} has no effect: "
                f"the setting epp.extraFlags has {given[name]!r}"
            )
            context.findings.warn(_WHERE, text)
    return [
        f"{name}={value}"
        for name, value in (*own.items(), *sorted({**wanted, **given}.items()))
    ]


def _by_flag(flags: Mapping[str, str]) -> dict[str, str]:
    return {f"--{name.lstrip('-')}": value for name, value in flags.items()}


def _environment(context: Context) -> list[Json]:
    variables: list[Json] = [
        {
            "name": "NAMESPACE",
            "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}},
        },
        {"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
    ]
    if context.settings.tracing_enabled:
        variables += (
            tracing.environment(context.settings, "modelplane-epp")
            + tracing.pod_attributes()
        )
    return variables


def _container(context: Context) -> Json:
    probe = {"grpc": {"port": _HEALTH_PORT, "service": "inference-extension"}}
    # Older kubelets would need a program of the image, which has none that sleeps.
    sleep = {"preStop": {"sleep": {"seconds": context.settings.longest_generation}}}
    lifecycle = sleep if context.cluster.at_least(*SLEEP_SINCE) else None
    return compact(
        name=_CONTAINER,
        image=context.settings.epp_image,
        args=_arguments(context),
        env=_environment(context),
        ports=[
            {"name": "grpc", "containerPort": GRPC_PORT},
            {"name": "grpc-health", "containerPort": _HEALTH_PORT},
            {"name": METRICS_PORT_NAME, "containerPort": METRICS_PORT},
        ],
        readinessProbe={**probe, "periodSeconds": 2},
        livenessProbe={**probe, "initialDelaySeconds": 5, "periodSeconds": 10},
        lifecycle=lifecycle,
        resources={
            "requests": dict(context.settings.epp_requests),
            "limits": dict(context.settings.epp_limits),
        },
        securityContext=contract.restricted(),
        volumeMounts=[
            {"name": _CONFIG_VOLUME, "mountPath": _CONFIG_PATH, "readOnly": True}
        ],
    )


def _deployment(context: Context, text: str) -> RenderedObject:
    # The picker reads its file only at startup, so a changed text must roll the pod. An
    # unchanged text must not.
    checksum = hashlib.sha256(text.encode()).hexdigest()
    pull = pull_secrets(context.settings)
    manifest = {
        "apiVersion": apiversions.APPS,
        "kind": "Deployment",
        "metadata": context.metadata(context.picker),
        "spec": {
            "replicas": context.settings.epp_replicas,
            "selector": {"matchLabels": _selector(context)},
            # A new picker counts as available when gateways have resolved its address.
            "minReadySeconds": _RESOLVED_SECONDS,
            "strategy": {
                "type": "RollingUpdate",
                "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0},
            },
            "template": {
                "metadata": {
                    "labels": _selector(context),
                    "annotations": {labels.EPP_CONFIG_CHECKSUM: checksum},
                },
                "spec": {
                    **compact(
                        imagePullSecrets=pull,
                        topologySpreadConstraints=_spread(context),
                    ),
                    **_placement(context.settings),
                    "serviceAccountName": context.picker,
                    "terminationGracePeriodSeconds": (
                        context.settings.longest_generation + _SHUTDOWN_SECONDS
                    ),
                    "securityContext": {
                        "runAsNonRoot": True,
                        "seccompProfile": {"type": "RuntimeDefault"},
                    },
                    "containers": [_container(context)],
                    "volumes": [
                        {"name": _CONFIG_VOLUME, "configMap": {"name": context.picker}}
                    ],
                },
            },
        },
    }
    return _item(context, inventory_keys.PICKER, manifest, context.picker_annotations())


def _spread(context: Context) -> list[Json]:
    """Return the preference that several pickers run on different nodes."""
    if context.settings.epp_replicas == 1:
        return []
    return [
        {
            "maxSkew": 1,
            "topologyKey": "kubernetes.io/hostname",
            "whenUnsatisfiable": "ScheduleAnyway",
            "labelSelector": {"matchLabels": _selector(context)},
        }
    ]


def _budget(context: Context) -> RenderedObject:
    # With a single picker, a budget would block every node drain.
    manifest = {
        "apiVersion": apiversions.POLICY,
        "kind": "PodDisruptionBudget",
        "metadata": context.metadata(context.picker),
        "spec": {
            "maxUnavailable": 1,
            "selector": {"matchLabels": _selector(context)},
        },
    }
    return _item(context, f"{inventory_keys.PICKER}-budget", manifest)


def _placement(settings: RenderSettings) -> Json:
    wanted = {
        "tolerations": [dict(each) for each in settings.pod_tolerations],
        "priorityClassName": settings.pod_priority_class,
        "affinity": dict(settings.pod_affinity),
    }
    return {key: value for key, value in wanted.items() if value}


def _destination_rule(context: Context) -> RenderedObject:
    # The picker serves gRPC with a self-signed certificate. Without this rule an Istio
    # sidecar would send plain text.
    manifest = {
        "apiVersion": apiversions.DESTINATION_RULE,
        "kind": "DestinationRule",
        "metadata": context.metadata(context.picker),
        "spec": {
            "host": f"{service_name(context)}.{context.namespace}.svc.cluster.local",
            "trafficPolicy": {"tls": {"mode": "SIMPLE", "insecureSkipVerify": True}},
        },
    }
    return _item(context, f"{inventory_keys.PICKER}-destinationrule", manifest)
