"""The table of kinds."""

import pytest

from api_types.resources.kinds import KINDS, READY, ScalePaths, UnknownKind, find_kind

SERVICE_COLUMNS = (
    "ADDRESS=.status.address ENDPOINTS=.status.summary.ready "
    "ENTRIES=.status.summary.entries"
)
# Kind, plural, short name, scope, columns as title=path, and the kind that users write.
TABLE = [
    ("InferenceClass", "inferenceclasses", "icl", "Cluster", "", ""),
    (
        "InferenceCluster",
        "inferenceclusters",
        "ic",
        "Cluster",
        "SOURCE=.spec.cluster.source GATEWAY=.status.gateway.address",
        "",
    ),
    (
        "InferenceGateway",
        "inferencegateways",
        "ig",
        "Cluster",
        "GATEWAY=.spec.backend ADDRESS=.status.address",
        "",
    ),
    (
        "ModelDeployment",
        "modeldeployments",
        "md",
        "Namespaced",
        "REPLICAS=.status.replicas.ready",
        "",
    ),
    (
        "ModelReplica",
        "modelreplicas",
        "mr",
        "Namespaced",
        "CLUSTER=.spec.clusterName",
        "ModelDeployment",
    ),
    ("ModelService", "modelservices", "ms", "Namespaced", SERVICE_COLUMNS, ""),
    (
        "ModelEndpoint",
        "modelendpoints",
        "me",
        "Namespaced",
        "URL=.spec.url BACKEND=.status.routing.backendName",
        "",
    ),
    (
        "ModelCache",
        "modelcaches",
        "mc",
        "Namespaced",
        "SOURCE=.spec.huggingFace.repo|.spec.oci.image|.spec.s3.bucket READY=.status.summary.ready",
        "",
    ),
    (
        "ServingStack",
        "servingstacks",
        "ss",
        "Namespaced",
        "GATEWAY=.status.gateway.address",
        "InferenceCluster",
    ),
]


def test_the_table_holds_every_kind_with_its_names_scope_and_columns() -> None:
    rows = [
        (
            info.kind,
            info.plural,
            info.short,
            "Namespaced" if info.namespaced else "Cluster",
            " ".join(
                f"{column.title}={'|'.join(column.paths)}" for column in info.columns
            ),
            info.written_instead,
        )
        for info in KINDS
    ]
    assert rows == TABLE
    assert [info.user_may_apply for info in KINDS] == [not row[-1] for row in TABLE]


def test_only_the_stack_is_of_the_infrastructure_group() -> None:
    assert {info.api_version for info in KINDS if info.kind != "ServingStack"} == {
        "modelplane.ai/v1alpha1"
    }
    assert find_kind("ss").api_version == "infrastructure.modelplane.ai/v1alpha1"


def test_every_list_shows_ready() -> None:
    assert (READY.title, READY.paths) == (
        "READY",
        (".status.conditions[?(@.type=='Ready')].status",),
    )


@pytest.mark.parametrize(
    "text", ["md", "MD", "modeldeployment", "modeldeployments", "ModelDeployment"]
)
def test_a_kind_is_found_by_each_of_its_names(text: str) -> None:
    assert find_kind(text).kind == "ModelDeployment"


def test_only_deployments_have_a_scale_subresource() -> None:
    assert {info.kind: info.scale for info in KINDS if info.scale} == {
        "ModelDeployment": ScalePaths(
            ".spec.replicas", ".status.replicas.total", ".status.selector"
        )
    }


def test_names_of_kinds_never_clash() -> None:
    names = [
        name for info in KINDS for name in (info.singular, info.plural, info.short)
    ]
    assert len(names) == len(set(names))


UNKNOWN = [
    ("modeldeploymnt", 'unknown kind "modeldeploymnt", did you mean ModelDeployment?'),
    ("ModelPlacement", 'unknown kind "ModelPlacement"; it was renamed ModelReplica'),
    (
        "InferenceEnvironment",
        'unknown kind "InferenceEnvironment"; it was renamed InferenceCluster',
    ),
    (
        "pods",
        'unknown kind "pods"; the kinds are ' + ", ".join(row[0] for row in TABLE),
    ),
]


@pytest.mark.parametrize(("text", "want"), UNKNOWN, ids=[text for text, _ in UNKNOWN])
def test_an_unknown_kind_gets_the_nearest_name(text: str, want: str) -> None:
    with pytest.raises(UnknownKind) as caught:
        find_kind(text)
    assert str(caught.value) == want
