"""Attacks on other namespaces and on the platform through manifests alone.

The tables cover every text field that a tenant can write. The tests walk the fields
from the table of kinds on, so a new field fails here until a table says which objects
it can reach. Both the client and the workflow reject each attempt, because a user can
signal a workflow directly. For other fields, the rendered objects stay in the tenant's
namespace.
"""

import copy
import re
import types
import typing
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
from pydantic import BaseModel

from activities.clients.secrets.directory import SecretDirectory
from activities.render.inputs.findings import InvalidSpec
from activities.render.inputs.settings import RenderSettings
from activities.render.objects.queues import PRIORITY_LABELS
from activities.secrets.store import StoredSecret
from activities.workloads.copies import needed_copies
from api_types import labels, names
from api_types.errors import InvalidInput
from api_types.messages.cluster_work import CacheMount
from api_types.pins import apiversions
from api_types.pins.charts import STACK_NAMESPACES
from api_types.resources.kinds import KINDS
from api_types.validation.manifests import InvalidManifest, admit
from fleet_client.checks import CHECKS
from tests.activities.environment.orders import an_apply
from tests.activities.render import builders as rendering
from tests.api_types import builders
from workflows.entity.admission import admitted

TENANTS = [info for info in KINDS if info.namespaced and info.user_may_apply]
MEMBER = "spec.template.spec.engines.[].members.[]"
ENGINE = "spec.template.spec.engines.[]"
POD = f"{MEMBER}.template.spec"
ENV = f"{POD}.containers.[].env.[]"
ADAPTER = {"name": "sql", "modelCacheRef": {"name": "sql"}}
BUCKET = {"bucket": "models", "endpoint": "https://s3.example", "sizeGiB": 10}
OCI = {"source": "OCI", "oci": {"image": "registry.example/m:1", "sizeGiB": 10}}


def with_value(document: Any, path: str, value: Any) -> Any:
    """Return the document with a field set; missing parents are created."""
    first, _, rest = path.partition(".")
    if not first or first == "{}":
        return {**(document or {}), **value} if first else value
    if first == "[]":
        held = document or [{}]
        return [with_value(held[0], rest, value), *held[1:]]
    return {
        **(document or {}),
        first: with_value((document or {}).get(first), rest, value),
    }


DOCUMENTS: dict[str, dict[str, Any]] = {
    "ModelDeployment": with_value(
        builders.a_deployment(), f"{ENGINE}.adapters", [ADAPTER]
    ),
    "ModelService": builders.a_service(),
    "ModelEndpoint": builders.an_endpoint(),
    "ModelCache": with_value(builders.a_cache(), "spec.s3", BUCKET),
}


class Attempt(NamedTuple):
    """A value in a field, and the expected error message.

    `kind` names the only kind with this field; empty means all kinds.
    """

    path: str
    value: Any
    says: str
    kind: str = ""


class Harmless(NamedTuple):
    """Fields that reach no object of other tenants, and the reason."""

    path: str
    why: str


PLATFORM = "belongs to the platform; use a namespace of your own"
RESERVED = "uses the reserved prefix"
SET_BY_PLATFORM = "the platform sets it"
GRANTED_BY_PLATFORM = "only the platform sets it"
OTHER_PICKER = names.picker_name(names.workload_name("other", "qwen"))
OTHER_VOLUMES = "the platform adds every other volume"

ATTEMPTS = [
    *(
        Attempt("metadata.namespace", name, PLATFORM)
        for name in (
            "modelplane-system",
            "kube-system",
            "kube-x",
            *sorted(STACK_NAMESPACES),
        )
    ),
    *(
        Attempt("metadata.namespace", name, "must be a DNS label")
        for name in ("../ml", "ml/other", "ml.other")
    ),
    *(
        Attempt("metadata.name", name, "must be a DNS subdomain")
        for name in ("../x", "other/x", "x\u0000")
    ),
    # Labels that select objects of the control plane, and pods of other tenants.
    Attempt(
        "spec.template.metadata.labels.{}",
        {labels.DEPLOYMENT: "other"},
        RESERVED,
        "ModelDeployment",
    ),
    Attempt(
        f"{MEMBER}.template.metadata.labels.{{}}",
        {labels.SERVING: "other-1a2b3c4d"},
        RESERVED,
        "ModelDeployment",
    ),
    Attempt(
        f"{MEMBER}.template.metadata.labels.{{}}",
        {labels.OWNER_UID: "u"},
        RESERVED,
        "ModelDeployment",
    ),
    Attempt(
        f"{MEMBER}.template.metadata.labels.{{}}",
        {"app": OTHER_PICKER},
        "names an endpoint picker",
        "ModelDeployment",
    ),
    # Flags of an endpoint picker. A test below covers all of them.
    *(
        Attempt(
            "metadata.annotations.{}",
            {labels.PICKER_FLAGS: f"v=4,{flag}=x"},
            f"flag --{flag} is set by the platform",
            "ModelDeployment",
        )
        for flag in (
            "metrics-endpoint-auth",
            "config-text",
            "endpoint-selector",
            "kubeconfig",
        )
    ),
    # Fields that a pod template may not have.
    *(
        Attempt(f"{POD}.{field}", value, says, "ModelDeployment")
        for field, value, says in (
            ("serviceAccountName", "argocd-server", GRANTED_BY_PLATFORM),
            ("hostNetwork", True, SET_BY_PLATFORM),
            ("hostPID", True, "unknown field"),
            ("securityContext", {"runAsUser": 0}, GRANTED_BY_PLATFORM),
            ("volumes", [{"name": "h", "hostPath": {"path": "/"}}], OTHER_VOLUMES),
            (
                "initContainers",
                [{"name": "i", "image": "i"}],
                "the engine is the only container",
            ),
            ("nodeSelector", {"node-role": "control-plane"}, "choose hardware"),
            ("tolerations", [{"operator": "Exists"}], "choose hardware"),
            ("nodeName", "control-plane-0", "unknown field"),
            ("automountServiceAccountToken", True, "unknown field"),
            (
                "containers.[].securityContext",
                {"privileged": True},
                GRANTED_BY_PLATFORM,
            ),
            (
                "containers.[].volumeMounts",
                [{"name": "h", "mountPath": "/h"}],
                OTHER_VOLUMES,
            ),
            (
                "containers.[].envFrom",
                [{"secretRef": {"name": "x"}}],
                "list the variables",
            ),
            ("containers.[].ports", [{"containerPort": 1, "hostPort": 1}], "port 8000"),
        )
    ),
    # No reference names another namespace.
    Attempt(
        f"{ENV}.valueFrom.secretKeyRef.namespace",
        "other",
        "unknown field",
        "ModelDeployment",
    ),
    Attempt(
        f"{ENV}.valueFrom.configMapKeyRef.namespace",
        "other",
        "unknown field",
        "ModelDeployment",
    ),
    Attempt(
        f"{POD}.imagePullSecrets.[].namespace",
        "other",
        "unknown field",
        "ModelDeployment",
    ),
    Attempt(
        "spec.template.spec.modelCacheRef.namespace",
        "other",
        "unknown field",
        "ModelDeployment",
    ),
    Attempt(
        "spec.huggingFace.authSecret.namespace",
        "modelplane-system",
        "unknown field",
        "ModelCache",
    ),
    Attempt(
        f"{ENGINE}.adapters.[].modelCacheRef.namespace",
        "other",
        "unknown field",
        "ModelDeployment",
    ),
    Attempt(
        "spec.s3.authSecret.namespace",
        "modelplane-system",
        "unknown field",
        "ModelCache",
    ),
    Attempt(
        "spec.endpoints.[].selector.namespace", "other", "unknown field", "ModelService"
    ),
    Attempt(
        "spec.endpoints.[].selector.namespaceSelector",
        {},
        "unknown field",
        "ModelService",
    ),
]

# Values that end up in annotations, addresses, program arguments or paths have a closed
# alphabet.
ATTEMPTS += [
    Attempt(f"{ENGINE}.{field}", value, says, "ModelDeployment")
    for field, values, says in (
        (
            "topology.domain.nodeLabel",
            ("rack\nx: y", "../rack"),
            "must be the key of a node label",
        ),
        (
            "topology.domain",
            (
                {"nodeLabel": "rack", "topologyName": "a\nb"},
                {"nodeLabel": "rack", "topologyName": "../b"},
            ),
            "not the name",
        ),
        (
            "topology.deviceConstraints.[].matchAttribute",
            ("pcieRoot", "../a/b", "a.b/c\n"),
            "must be <domain>/<name>",
        ),
        (
            "topology.deviceConstraints",
            ([{"matchAttribute": "a/b", "requests": ["others"]}],),
            "no member of the engine requests",
        ),
        (
            "adapters.[].modelCacheRef.name",
            ("other/sql", "../sql", "sql\n"),
            "not the name of a ModelCache",
        ),
        (
            "adapters.[].modelNames.[]",
            ("a b", "a\nb", "é", "a\u0000"),
            "must be printable ASCII",
        ),
        (
            "adapters.[].name",
            ("../sql", "sql,x=/etc", "--api-key", "sql=/etc"),
            "must be a DNS label",
        ),
        *(
            (f"profile.{name}", ("health", "/a\nb", "http://x/"), "must match ^")
            for name in ("healthPath", "metricsPath")
        ),
        *(
            (f"profile.{name}", ("--a=b", "--a b", "x", "--a\n"), "must match ^")
            for name in ("modelFlag", "servedNameFlag", "parallelFlags.[]")
        ),
    )
    for value in values
]
ATTEMPTS += [
    Attempt(f"spec.{field}", value, says, "ModelCache")
    for field, values, says in (
        (
            "huggingFace.allowPatterns",
            (["$(HF_TOKEN)"], ["a\nb"]),
            "is not a pattern of files",
        ),
        ("huggingFace.ignorePatterns", (["`id`"], ["*" * 257]), "ignorePatterns[0]"),
        ("s3.bucket", ("../x", "a/b", "models.evil.example/"), "not a bucket"),
        (
            "s3.prefix",
            ("../other", "a/../b", "/x", "$(MODELPLANE_S3_CREDENTIALS)"),
            "not a prefix",
        ),
        (
            "s3.endpoint",
            (
                "https://u:p@h",
                "https://h/x",
                "https://h?x",
                "file:///etc/passwd",
                "http://h\r\nx",
            ),
            "not an endpoint",
        ),
        ("s3.region", ("x.evil.example/", "x@evil", "eu\n"), "not a region"),
        (
            "volume.storageClassName",
            ("../x", "a/b", "a..b"),
            "not the name of an object",
        ),
        (
            "huggingFace.authSecret.name",
            ("../other/x", "x\u0000"),
            "not the name of an object",
        ),
        (
            "huggingFace.authSecret",
            ({"name": "hub", "key": "../x"}, {"name": "hub", "key": ".."}),
            "not a key",
        ),
    )
    for value in values
]

OWN_NAME = "a name within the object, hashed with its namespace into generated names"
OWN_POD = "runs in a pod of the tenant"
OWN_NAMESPACE = "resolved in the namespace of the object: see the tests below"
FLEET = "chooses among clusters and nodes, which all tenants share"
CONTROL_PLANE = "written by the control plane; user values are ignored"
HARMLESS = [
    Harmless("apiVersion", "selects the model"),
    *(
        Harmless(f"metadata.{field}", CONTROL_PLANE)
        for field in (
            "uid",
            "resourceVersion",
            "creationTimestamp",
            "deletionTimestamp",
        )
    ),
    Harmless(
        "metadata.labels.{}", "of the object itself, which is found by its workflow id"
    ),
    Harmless(
        "metadata.annotations.{}",
        "of the object itself; flags of its picker are checked here and when rendered",
    ),
    Harmless("spec.template.spec.clusterSelector.*", FLEET),
    Harmless("spec.template.spec.tolerations.*", FLEET),
    Harmless(f"{MEMBER}.nodeSelector.devices.*", FLEET),
    Harmless(
        "spec.scheduling.*",
        f"{FLEET}; the scheduler decides about preemption, see SECURITY.md",
    ),
    Harmless("spec.rollout.*", "a number"),
    Harmless("spec.drain.*", "a number"),
    Harmless("spec.template.spec.disruption.*", "a number"),
    Harmless("spec.template.spec.engines.[].name", OWN_NAME),
    Harmless("spec.template.spec.modelCacheRef.name", OWN_NAMESPACE),
    Harmless(
        f"{MEMBER}.template.metadata.annotations.{{}}",
        "keys that webhooks act on are rejected when rendered: see the tests below",
    ),
    *(
        Harmless(f"{POD}.containers.[].{field}", OWN_POD)
        for field in ("image", "command.[]", "args.[]")
    ),
    *(
        Harmless(f"{ENV}.{field}", OWN_POD)
        for field in ("name", "value", "valueFrom.fieldRef.*")
    ),
    Harmless(f"{ENV}.valueFrom.secretKeyRef.*", OWN_NAMESPACE),
    Harmless(f"{ENV}.valueFrom.configMapKeyRef.*", OWN_NAMESPACE),
    Harmless(f"{POD}.imagePullSecrets.[].name", OWN_NAMESPACE),
    Harmless(
        "spec.endpoints.[].selector.matchLabels.{}",
        "selects endpoints of the service's namespace",
    ),
    Harmless("spec.endpoints.[].name", "shown, and named in commands"),
    Harmless(
        "spec.url",
        "read by `read_url`; other URLs are `InvalidURL`, and no object is created for them",
    ),
    Harmless(
        "spec.rewritePath", "checked by `rewrite_path_problems` before it is in a route"
    ),
    Harmless(
        "spec.timeouts.*",
        "durations in the form of the Gateway API, for requests to the service itself",
    ),
    Harmless("spec.huggingFace.repo", "a path of the hub that the operator chose"),
    Harmless("spec.huggingFace.revision", "a path of the hub that the operator chose"),
    Harmless("spec.huggingFace.authSecret.*", OWN_NAMESPACE),
    Harmless(
        "spec.oci.image",
        "read by the outbound HTTP client, which checks each destination: see SECURITY.md",
    ),
    Harmless("spec.oci.pullSecret", OWN_NAMESPACE),
    Harmless(
        "spec.template.spec.serving.prefixCache.modelName",
        "a name in the configuration of the tenant's picker",
    ),
    Harmless(
        "spec.template.spec.serving.prefixCache.tokenizerUrl",
        "requested by the tenant's picker, without a credential",
    ),
    Harmless(
        f"{ENGINE}.topology.domain.topologyName",
        "an annotation of the tenant's pods; the object has levels of nodes alone",
    ),
    Harmless(
        f"{ENGINE}.topology.deviceConstraints.[].requests.[]",
        "names requests of the same engine",
    ),
    Harmless("spec.huggingFace.*Patterns.[]", "matched in a pod of the tenant"),
    Harmless("spec.s3.authSecret.*", OWN_NAMESPACE),
    Harmless("spec.clusterSelector.*", FLEET),
    *(
        Harmless(f"spec.hydration.proxy.{field}", OWN_POD)
        for field in ("http", "https", "noProxy.[]")
    ),
    Harmless("spec.hydration.proxy.urlSecret.*", OWN_NAMESPACE),
    Harmless("spec.hydration.caBundle.*", OWN_NAMESPACE),
    Harmless("spec.hydration.imagePullSecrets.[].name", OWN_NAMESPACE),
    Harmless(
        "spec.hydration.serviceAccountName",
        f"{OWN_NAMESPACE} of a cluster; refused where tenants share one",
    ),
    *(
        Harmless(
            f"spec.hydration.tolerations.[].{field}",
            "a Job has no device and no permission: it only takes a place on a node",
        )
        for field in ("key", "value")
    ),
]


# The tables are complete


def texts_of(
    model: type[BaseModel], path: str = "", outer: tuple[Any, ...] = ()
) -> Iterator[str]:
    """Yield the path of every text field and every map with free keys.

    `status` is omitted, because only the control plane writes it.
    """
    for name, field in model.model_fields.items():
        if path or name != "status":
            yield from _texts(
                field.annotation,
                f"{path}.{field.alias or name}".lstrip("."),
                (*outer, model),
            )


def _texts(kind: Any, path: str, outer: tuple[Any, ...]) -> Iterator[str]:
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Annotated, typing.Union, types.UnionType):
        for each in inner[:1] if origin is typing.Annotated else inner:
            yield from _texts(each, path, outer)
    elif origin in (dict, Mapping):
        yield f"{path}.{{}}"
    elif origin in (tuple, list):
        yield from _texts(inner[0], f"{path}.[]", outer)
    elif isinstance(kind, type) and issubclass(kind, BaseModel):
        if kind not in outer:
            yield from texts_of(kind, path, outer)
    elif origin is not typing.Literal and kind not in (int, float, bool, type(None)):
        yield path


FIELDS = [
    (info.kind, path)
    for info in TENANTS
    for path in dict.fromkeys(texts_of(info.model))
]


def test_every_text_that_a_tenant_can_write_is_in_a_table() -> None:
    known = [*(each.path for each in ATTEMPTS), *(each.path for each in HARMLESS)]
    patterns = [path.replace("[]", "[[]]") for path in known]
    assert [
        f"{kind} {path}"
        for kind, path in FIELDS
        if not any(fnmatchcase(path, pattern) for pattern in patterns)
    ] == []


def test_every_harmless_field_exists() -> None:
    paths = [path for _, path in FIELDS]
    assert [
        each.path
        for each in HARMLESS
        if not any(fnmatchcase(path, each.path.replace("[]", "[[]]")) for path in paths)
    ] == []


def test_every_kind_that_tenants_write_has_a_document() -> None:
    assert set(DOCUMENTS) == {info.kind for info in TENANTS}


# The client and the workflow


def cases() -> list[Any]:
    return [
        pytest.param(attempt, kind, id=f"{kind} {attempt.path} {attempt.value}")
        for attempt in ATTEMPTS
        for kind in ([attempt.kind] if attempt.kind else DOCUMENTS)
    ]


@pytest.mark.parametrize(("attempt", "kind"), cases())
def test_the_client_and_the_workflow_reject_each_attempt(
    attempt: Attempt, kind: str
) -> None:
    document = with_value(copy.deepcopy(DOCUMENTS[kind]), attempt.path, attempt.value)
    with pytest.raises(InvalidManifest) as by_client:
        admit(document, CHECKS)
    assert attempt.says in str(by_client.value)

    metadata = document["metadata"]
    workflow: Any = SimpleNamespace(
        kind=kind,
        namespace=metadata["namespace"],
        name=metadata["name"],
        title=f"{kind} x",
    )
    with pytest.raises(InvalidManifest) as by_workflow:
        admitted(workflow, document, None)
    assert attempt.says in str(by_workflow.value)


@pytest.mark.parametrize("kind", DOCUMENTS)
def test_a_manifest_of_another_namespace_is_refused_by_the_workflow(kind: str) -> None:
    workflow: Any = SimpleNamespace(
        kind=kind,
        namespace="other",
        name=DOCUMENTS[kind]["metadata"]["name"],
        title=f"{kind} x",
    )
    with pytest.raises(InvalidManifest, match="send it to the workflow with that id"):
        admitted(workflow, DOCUMENTS[kind], None)


# Rendered and copied objects


def everything(namespace: str, name: str) -> list[Any]:
    """Return all objects of the largest replicas."""
    identity: dict[str, Any] = {"namespace": namespace, "name": name}
    settings = {"monitoring_enabled": True}
    rendered = [
        rendering.render_pair(
            settings=settings, cluster=rendering.a_cluster(routing="pool"), **identity
        ),
        rendering.render(rendering.a_gang(), settings=settings, **identity),
    ]
    return [item.manifest for each in rendered for item in each.objects]


def test_rendered_objects_are_in_the_namespace_of_the_tenant() -> None:
    made = everything("ml-team", "qwen")
    assert {each["metadata"].get("namespace") for each in made} <= {"ml-team", None}
    cluster_scoped = [each for each in made if "namespace" not in each["metadata"]]
    assert all("ml-team" in str(each) for each in cluster_scoped)
    for each in made:
        for subject in each.get("subjects", []):
            assert subject["namespace"] == "ml-team"


def test_no_two_tenants_share_an_object_even_with_similar_names() -> None:
    # Pairs that are equal when joined with a dash, and names long enough to be cut.
    long = "a" * 63
    tenants = [
        ("a", "b-c"),
        ("a-b", "c"),
        ("other", "b-c"),
        ("a", long),
        ("other", long),
        ("a", f"{long[:-1]}b"),
    ]
    made = [
        {
            (each["kind"], each["metadata"].get("namespace"), each["metadata"]["name"])
            for each in everything(*tenant)
        }
        for tenant in tenants
    ]
    # Names also differ when an operator chose one namespace for all tenants.
    by_name = [{(kind, name) for kind, _, name in each} for each in made]
    for group in (made, by_name):
        assert len(set[Any]().union(*group)) == sum(map(len, group))
    copies = {
        names.copy_name(namespace, "Secret", name, ()) for namespace, name in tenants
    }
    claims = {
        names.cache_claim_name(namespace, name, "k") for namespace, name in tenants
    }
    assert len(copies) == len(claims) == len(tenants)


def test_selectors_of_a_replica_select_its_own_pods_only() -> None:
    workload = names.workload_name("ml-team", "qwen")
    reserved = re.compile(
        rf"^({re.escape(labels.RESERVED_PREFIX)}|leaderworkerset\.sigs\.k8s\.io/|app$)"
    )
    for each in everything("ml-team", "qwen"):
        spec = each.get("spec") or {}
        selector = spec.get("selector") if isinstance(spec, dict) else None
        wanted = (selector or {}).get("matchLabels", selector) or {}
        assert not wanted or any(reserved.match(key) for key in wanted), (
            each["kind"],
            wanted,
        )
        assert wanted.get("app", workload).startswith(workload)


def test_a_template_sent_directly_to_a_replica_gains_no_privileges() -> None:
    # The replica's workflow admits no manifest, but the renderer copies only the fields
    # that it knows.
    member = rendering.a_member()
    pod = {
        "serviceAccountName": "argocd-server",
        "hostNetwork": True,
        "hostPID": True,
        "securityContext": {"runAsUser": 0},
        "volumes": [{"name": "h", "hostPath": {"path": "/host"}}],
        "initContainers": [{"name": "i", "image": "i"}],
    }
    container = {
        "securityContext": {"privileged": True},
        "envFrom": [{"secretRef": {"name": "x"}}],
        "volumeMounts": [{"name": "h"}],
    }
    spec = member["template"]["spec"]
    member["template"]["spec"] = {
        **spec,
        **pod,
        "containers": [{**spec["containers"][0], **container}],
    }
    made = rendering.render(
        rendering.an_engine("main", member), cluster=rendering.a_cluster(routing="pool")
    )
    assert rendering.pod(made) == rendering.pod(
        rendering.render(
            rendering.an_engine(), cluster=rendering.a_cluster(routing="pool")
        )
    )


# Flags that choose the pods of a picker, its ports, and the users that may read it.
PICKER_FLAGS = [
    *(
        "pool-name",
        "pool-namespace",
        "pool-group",
        "endpoint-selector",
        "endpoint-target-ports",
        "config-file",
        "config-text",
    ),
    *(
        "grpc-port",
        "grpc-health-port",
        "metrics-port",
        "secure-serving",
        "cert-path",
        "enable-cert-reload",
        "kubeconfig",
    ),
    *(
        "metrics-endpoint-auth",
        "metrics-cert-dir",
        "metrics-client-ca-file",
        "enable-pprof",
        "enable-plugin-state-debug",
    ),
    *("ha-enable-leader-election", "tracing", "zap-encoder"),
]


@pytest.mark.parametrize(
    "settings", [{}, {"epp_metrics_auth": True}, {"epp_replicas": 2}], ids=str
)
@pytest.mark.parametrize("flag", PICKER_FLAGS)
def test_flags_cannot_point_an_endpoint_picker_at_other_pods(
    flag: str, settings: dict[str, Any]
) -> None:
    for name in (flag, f"--{flag}"):
        with pytest.raises(InvalidSpec, match=f"flag --{flag} is set by the platform"):
            rendering.render(
                picker_flags={name: "other"},
                cluster=rendering.a_cluster(routing="pool"),
                settings=settings,
            )


def test_a_tenant_cannot_override_picker_flags_of_the_operator() -> None:
    cluster, settings = (
        rendering.a_cluster(routing="pool"),
        {"epp_extra_flags": {"v": "2"}},
    )
    found = rendering.the(
        rendering.render(picker_flags={"v": "9"}, cluster=cluster, settings=settings),
        "epp",
    )
    args = found["spec"]["template"]["spec"]["containers"][0]["args"]
    assert [word for word in args if word.startswith("--v=")] == ["--v=2"]


def test_an_engine_pod_is_not_behind_the_picker_of_another_deployment() -> None:
    service = rendering.the(
        rendering.render(
            cluster=rendering.a_cluster(routing="pool"), namespace="other", name="qwen"
        ),
        "epp-service",
    )
    assert service["spec"]["selector"] == {"app": OTHER_PICKER}
    for engine in (
        rendering.an_engine("main", rendering.a_member(labels={"app": OTHER_PICKER})),
        rendering.an_engine(
            "gang",
            rendering.a_member("Leader"),
            rendering.a_member("Worker", labels={"app": OTHER_PICKER}),
        ),
    ):
        with pytest.raises(
            InvalidSpec,
            match=f"label 'app': \"{OTHER_PICKER}\" names an endpoint picker",
        ):
            rendering.render(engine)
    mine = rendering.an_engine(
        "main", rendering.a_member(labels={"app": "chat-epp", "team": OTHER_PICKER})
    )
    assert (
        rendering.pod(rendering.render(mine))["metadata"]["labels"]["app"] == "chat-epp"
    )


@pytest.mark.parametrize("kind", ["secretKeyRef", "imagePullSecrets"])
def test_pods_cannot_use_the_secrets_that_the_platform_creates_in_their_namespace(
    kind: str,
) -> None:
    """The token of an endpoint picker can read pods and review tokens.

    Tenant pods have no token.
    """
    settings = {"epp_metrics_auth": True}
    made = rendering.render(
        cluster=rendering.a_cluster(routing="pool", apis=(apiversions.POD_MONITOR,)),
        settings=settings,
    )
    secrets = [
        item.manifest["metadata"]["name"]
        for item in made.objects
        if item.manifest["kind"] == "Secret"
    ]
    assert secrets
    for name in [
        *secrets,
        names.copy_name("ml", "Secret", "hub", ()),
        names.cache_credential_name(names.cache_claim_name("ml", "c", "k")),
    ]:
        used = (
            {"pull_secrets": [name]}
            if kind == "imagePullSecrets"
            else {
                "env": [{"name": "T", "valueFrom": {kind: {"name": name, "key": "k"}}}]
            }
        )
        with pytest.raises(
            InvalidSpec, match=f"{name}.*reserved for objects of the platform"
        ):
            rendering.render(rendering.an_engine("main", rendering.a_member(**used)))
        if kind == "imagePullSecrets":
            mounts = {
                "qwen": CacheMount(image="registry.example/m:1", pull_secret=name)
            }
            with pytest.raises(
                InvalidSpec, match=f"{name}.*reserved for objects of the platform"
            ):
                rendering.render(cache="qwen", cache_claim="image", mounts=mounts)


@pytest.mark.parametrize("key", sorted(PRIORITY_LABELS))
def test_labels_that_raise_the_priority_of_pods_are_refused(
    key: str,
) -> None:
    for engine in (
        rendering.an_engine("main", rendering.a_member(labels={key: "high"})),
        rendering.an_engine(
            "gang",
            rendering.a_member("Leader"),
            rendering.a_member("Worker", labels={key: "high"}),
        ),
    ):
        with pytest.raises(
            InvalidSpec,
            match=rf"label '{key}' is not allowed.*spec\.scheduling\.priorityClassName",
        ):
            rendering.render(engine)


def test_a_label_for_a_cloud_webhook_chooses_no_service_account() -> None:
    """The webhook mounts a token of the pod's service account.

    Only the InferenceClass chooses that account.
    """
    engine = rendering.an_engine(
        "main", rendering.a_member(labels={"azure.workload.identity/use": "true"})
    )
    made, without = (
        rendering.pod(rendering.render(engine)),
        rendering.pod(rendering.render()),
    )
    assert made["metadata"]["labels"]["azure.workload.identity/use"] == "true"
    assert made["spec"] == without["spec"]
    assert "serviceAccountName" not in made["spec"]


@pytest.mark.parametrize(
    "name", ["../other/x", "other/x", "../../modelplane-system/x", "/x", ".."]
)
@pytest.mark.parametrize(
    "kind", ["secretKeyRef", "configMapKeyRef", "imagePullSecrets"]
)
async def test_a_reference_cannot_leave_its_namespace(
    tmp_path: Path, name: str, kind: str
) -> None:
    store = SecretDirectory(tmp_path)
    for namespace in ("other", "modelplane-system"):
        await store.put(StoredSecret(namespace, "x", {"k": b"of another"}))
    fields: dict[str, Any] = {"pull_secrets": [name]}
    if kind != "imagePullSecrets":
        fields = {
            "env": [{"name": "X", "valueFrom": {kind: {"name": name, "key": "k"}}}]
        }
    order = an_apply("r", rendering.an_engine("main", rendering.a_member(**fields)))
    with pytest.raises(InvalidInput, match="must be a lower-case DNS name"):
        await needed_copies(store, order, RenderSettings(secrets_propagation="all"))
