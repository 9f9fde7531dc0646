"""The next step for a condition, by kind and reason, and only for reasons that the
control plane sets.
"""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from activities.clients.secrets.directory import SecretDirectory
from activities.secrets.credentials import read_credential
from activities.secrets.store import SecretKind, StoredSecret
from api_types import errors
from api_types.resources.kinds import BY_KIND
from client.follow.final_conditions import FINAL, OPTIONAL
from fleet_client.advice import ADVICE, advice
from fleet_client.refs.targets import Target
from fleet_client.refs.tree import Tree
from workflows.cloud_cluster.next_steps import next_step
from workflows.entity.failures import WAITING_FOR_WORKER, Failure
from workflows.inference_cluster.gateway import Gateway
from workflows.inference_cluster.status import ClusterStatusInputs, cluster_verdict
from workflows.model_cache.status import ClusterPhase, artifact_verdict, matched_verdict
from workflows.model_replica.apply import _REASONS
from workflows.model_service.verdicts import NO_ENDPOINTS, RESOLVING

ROOT = Path(__file__).parents[3]
# The modules that set the reasons of a kind's conditions.
SOURCES = {
    "InferenceClass": ["workflows/inference_class.py"],
    "InferenceGateway": ["workflows/inference_gateway"],
    "ModelEndpoint": ["workflows/model_endpoint.py"],
    "ModelService": ["workflows/model_service"],
    "InferenceCluster": [
        "workflows/inference_cluster",
        "workflows/cloud_cluster/shown.py",
    ],
    "ServingStack": ["workflows/inference_cluster"],
    "ModelCache": ["workflows/model_cache"],
    "ModelDeployment": [
        "workflows/model_deployment",
        "scheduler/explain/conditions.py",
    ],
    # The refusals of rendering, and the reasons why workloads are left out.
    "ModelReplica": [
        "workflows/model_replica",
        "activities/render/inputs/findings.py",
        "activities/render/objects/rendered.py",
    ],
}
ERRORS = {name for name, member in vars(errors).items() if isinstance(member, type)}


def of_a_failure(error: str) -> str:
    """The reason of a cluster whose connection failed."""
    view = ClusterStatusInputs(
        source="Existing",
        missing_classes=[],
        failure=Failure(error, "why"),
        connected_once=False,
        was_ready=False,
        unwatched="",
        unresponsive="",
        gateway=Gateway(),
        stack=None,
    )
    return cluster_verdict(view).reason


# Reasons that follow from an error. A failed apply has the name of its error, unless
# the error or a table sets another one.
OF_ERRORS = {
    "InferenceCluster": {
        of_a_failure(error) for error in (*ERRORS, WAITING_FOR_WORKER)
    },
    "ModelReplica": ERRORS - set(_REASONS) | {"SecretMissing", WAITING_FOR_WORKER},
}


def texts(node: ast.AST) -> Iterator[str]:
    """Return every text in the code, except compared texts, keys of tables, and
    docstrings.
    """
    if isinstance(node, ast.Compare | ast.Expr):
        return
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    for child in (
        node.values if isinstance(node, ast.Dict) else ast.iter_child_nodes(node)
    ):
        yield from texts(child)


@cache
def nodes_of(file: Path) -> tuple[ast.AST, ...]:
    return tuple(ast.walk(ast.parse(file.read_text())))


@cache
def reasons_of(kind: str) -> set[str]:
    paths = [ROOT / source for source in SOURCES[kind]]
    files = [
        file
        for path in paths
        for file in (path.rglob("*.py") if path.is_dir() else [path])
    ]
    values = [node for file in files for node in nodes_of(file) if is_plain(node)]
    return {text for value in values for text in texts(value)} | OF_ERRORS.get(
        kind, set()
    )


def is_plain(node: ast.AST) -> bool:
    """Return whether a node is a value: of an assignment, a return or a call, not the
    condition of an `if`.
    """
    return isinstance(
        node, ast.Assign | ast.AnnAssign | ast.Return | ast.Call | ast.Dict
    )


KEYS = [(kind, reason) for kind, known in ADVICE.items() for reason in known]


@pytest.mark.parametrize(("kind", "reason"), KEYS, ids=[" ".join(key) for key in KEYS])
def test_each_reason_is_one_that_the_kind_sets(kind: str, reason: str) -> None:
    assert reason in reasons_of(kind)


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (kind, text)
        for kind, known in FINAL.items()
        for each, reasons in known.items()
        for text in (each, *reasons)
    ]
    + [(kind, each) for kind, types in OPTIONAL.items() for each in types],
)
def test_each_condition_at_the_end_of_a_wait_is_one_that_the_kind_sets(
    kind: str, text: str
) -> None:
    assert text in reasons_of(kind)


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("InferenceCluster", "NotSingleton"),
        ("InferenceCluster", "PermissionDenied"),
        ("ModelReplica", "PermissionDenied"),
        ("ModelReplica", "NoClusters"),
    ],
)
def test_the_check_finds_a_reason_that_the_kind_does_not_set(
    kind: str, reason: str
) -> None:
    assert reason not in reasons_of(kind)


# Reasons that need no action of a user: the control plane acts, or the message has the
# step.
_BY_ITSELF = "the control plane goes on by itself"
_ANOTHER = "another condition of the object says why"
_MESSAGE = "the message says what to do"
WITHOUT_ADVICE = {
    "InferenceClass": {"InUse": _MESSAGE},
    "InferenceGateway": {
        "Installing": _MESSAGE,
        "ClusterUnreachable": _MESSAGE,
        "BlockedByServices": _MESSAGE,
        "InProgress": _MESSAGE,
        "Deleting": _ANOTHER,
    },
    "ModelEndpoint": {
        "Deleting": _ANOTHER,
        "InProgress": _BY_ITSELF,
        "InvalidURL": _MESSAGE,
    },
    "ModelService": {
        "Deleting": _ANOTHER,
        "Resolving": _BY_ITSELF,
        "InProgress": _MESSAGE,
        "Configuring": _MESSAGE,
        "BackendShared": _MESSAGE,
        "BackendRefsUnresolved": _MESSAGE,
    },
    "InferenceCluster": {
        "Creating": _ANOTHER,
        "Unavailable": _ANOTHER,
        "WaitingForCluster": _ANOTHER,
        "Deleting": _ANOTHER,
        "Installing": _MESSAGE,
        "Occupied": _MESSAGE,
        "Provisioning": _MESSAGE,
        "EmptyingCluster": _MESSAGE,
        "LoadBalancersRemaining": _MESSAGE,
        "VolumesRemaining": _MESSAGE,
        "DeletingCloudCluster": _MESSAGE,
        "DeletionBlocked": _MESSAGE,
        "Uninstalling": _MESSAGE,
    },
    "ModelCache": {
        "Creating": _ANOTHER,
        "Unavailable": _ANOTHER,
        "Deleting": _ANOTHER,
        "Hydrating": _BY_ITSELF,
        "Partial": _BY_ITSELF,
        "TearingDown": _BY_ITSELF,
        "InUse": _MESSAGE,
    },
    "ModelDeployment": {
        "Creating": _ANOTHER,
        "Unavailable": _ANOTHER,
        "NoReplicasScheduled": _ANOTHER,
        "Deleting": _ANOTHER,
        "ScaledToZero": _BY_ITSELF,
        "Scheduling": _BY_ITSELF,
        "WaitingForReplicas": _MESSAGE,
        "WaitingForScheduler": _BY_ITSELF,
    },
    "ModelReplica": {
        "Creating": _ANOTHER,
        "Unavailable": _ANOTHER,
        "NotServing": _ANOTHER,
        "WaitingForModel": _ANOTHER,
        "AnswerTooLarge": _MESSAGE,
        "Deleting": _ANOTHER,
        "Configuring": _BY_ITSELF,
        "Deploying": _BY_ITSELF,
        "Draining": _BY_ITSELF,
        "ModelStarting": _BY_ITSELF,
        "Conflict": _BY_ITSELF,
        "ServerError": _BY_ITSELF,
        "Throttled": _BY_ITSELF,
    },
}
# Base classes, and errors that no apply raises.
NOT_OF_AN_APPLY = {
    "ActionRequiredError",
    "ActivityError",
    "ApplicationError",
    "Busy",
    "CapacityUnavailable",
    "ChartUnavailable",
    "CloudObjectBroken",
    "Dependency",
    "ModelplaneError",
    "NoControlCluster",
    "NotRunning",
    "NotYet",
    "OwnerMarkMissing",
    "PermanentError",
    "PlanOutdated",
    "QuotaExceeded",
    "ReleasePending",
    "ReplaceRequired",
    "StaleSnapshot",
    "StorageClassMissing",
    "TransientError",
    "WorkerClockWrong",
    "timedelta",
}
# The functions that return the reason of a verdict, if it is not written beside it.
CALLS = {"Verdict": slice(0, 2), "set_condition": slice(1, 3)}
REASON_OF_NAME = {
    "WAITING_FOR_WORKER": WAITING_FOR_WORKER,
    "RESOLVING": RESOLVING,
    "NO_ENDPOINTS": NO_ENDPOINTS,
}
ADMISSION = "workflows/entity/admission.py"


def name_of(call: ast.Call) -> str:
    if isinstance(call.func, ast.Attribute):
        return call.func.attr
    return getattr(call.func, "id", "")


def returned_texts(file: Path, name: str) -> set[str]:
    """Return the texts that the functions of a file with this name return."""
    found = set[str]()
    for function in nodes_of(file):
        if isinstance(function, ast.FunctionDef) and function.name == name:
            for node in ast.walk(function):
                if isinstance(node, ast.Return):
                    found |= set(texts(node))
    return found


def unmet_reasons_of(kind: str) -> set[str]:
    """Return every reason that a kind sets in a condition that is not True."""
    found = (OF_ERRORS.get(kind, set()) - NOT_OF_AN_APPLY) | (
        set(_REASONS.values()) if kind == "ModelReplica" else set()
    )
    for source in [path for path in SOURCES[kind] if path.startswith("workflows")] + [
        ADMISSION
    ]:
        path = ROOT / source
        for file in path.rglob("*.py") if path.is_dir() else [path]:
            for node in nodes_of(file):
                if not isinstance(node, ast.Call):
                    continue
                name = name_of(node)
                arguments = node.args[CALLS[name]] if name in CALLS else []
                if len(arguments) == 2 and not (
                    isinstance(arguments[0], ast.Name) and arguments[0].id == "TRUE"
                ):
                    found |= set(texts(arguments[1])) | {
                        REASON_OF_NAME.get(getattr(arguments[1], "id", ""), "")
                    }
                    if isinstance(arguments[1], ast.Call):
                        found |= returned_texts(file, name_of(arguments[1]))
    return found - {"", "True", "False"}


@pytest.mark.parametrize("kind", WITHOUT_ADVICE)
def test_each_reason_on_which_a_user_must_act_has_a_next_step(kind: str) -> None:
    reasons = unmet_reasons_of(kind)
    assert reasons - set(WITHOUT_ADVICE[kind]) <= set(ADVICE.get(kind, {})) | {
        "InvalidInput"
    }
    assert set(WITHOUT_ADVICE[kind]) <= reasons
    assert not set(WITHOUT_ADVICE[kind]) & (
        set(ADVICE.get(kind, {})) - {"ModelStarting"}
    )


def a_tree(reason: str, status: str = "False") -> Tree:
    return {
        "status": {"conditions": [{"type": "Any", "status": status, "reason": reason}]}
    }


def advised(kind: str, tree: Tree) -> str:
    return advice(Target.of(BY_KIND[kind], "ml", "qwen"), tree)


def test_an_unplaced_cache_gets_advice_on_storage_classes_and_a_deployment_on_labels() -> (
    None
):
    reason = matched_verdict([], "").reason
    assert "storageClassName" in advised("ModelCache", a_tree(reason))
    assert "storageClassName" not in advised("ModelDeployment", a_tree(reason))
    assert "no cluster has the labels" in advised("ModelDeployment", a_tree(reason))


@pytest.mark.parametrize(
    "kind",
    [
        "InferenceClass",
        "InferenceCluster",
        "ModelCache",
        "ModelDeployment",
        "ModelReplica",
    ],
)
def test_a_refused_spec_has_a_next_step_for_every_kind(kind: str) -> None:
    assert advised(kind, a_tree("InvalidInput")).startswith("fix the manifest")


@pytest.mark.parametrize("kind", ["Secret", "ConfigMap"])
@pytest.mark.parametrize(
    "stored",
    [None, {}, {"ca.crt": b""}],
    ids=["absent", "without the key", "with an empty key"],
)
async def test_the_advice_for_a_cache_names_the_missing_object(
    kind: SecretKind, stored: dict[str, bytes] | None, tmp_path: Path
) -> None:
    """Besides the token: a proxy, certificates and pull secrets of `spec.hydration`."""
    store = SecretDirectory(tmp_path)
    if stored is not None:
        await store.put(StoredSecret("ml", "company-ca", stored, kind=kind))
    credential = await read_credential(store, "ml", "company-ca", "ca.crt", kind)
    verdict = artifact_verdict(
        [ClusterPhase("eu", "Pending", "", selected=True)], credential.missing
    )
    tree = {"status": {"conditions": [{"type": "ArtifactReady", **verdict._asdict()}]}}
    assert (
        advised("ModelCache", tree)
        == f"apply {kind} ml/company-ca, with the key that the message names"
    )


def test_a_credential_that_the_message_does_not_name_is_looked_up_there() -> None:
    assert advised("ModelCache", a_tree("AuthSecretMissing")).startswith(
        "apply the Secret or ConfigMap that the message names"
    )


def test_a_condition_that_is_true_needs_no_step() -> None:
    assert advised("ModelCache", a_tree("Failed", status="True")) == ""


def test_the_command_names_the_object() -> None:
    assert (
        advised("ModelCache", a_tree("Failed"))
        == "fix the cause in the message, then `modelplane retry mc/qwen -n ml`"
    )


def test_the_step_of_a_cloud_object_precedes_that_of_a_condition() -> None:
    automatic, person = (
        {"object": key, "nextStep": next_step(reason, "eu")}
        for key, reason in (("net/vpc", "Busy"), ("pool/l4", "QuotaExceeded"))
    )
    tree = a_tree("Missing")
    tree["status"]["cloudObjects"] = [{"object": "cluster"}, automatic, person]
    assert advised("InferenceCluster", tree) == (
        "pool/l4: request a higher quota from the cloud, or lower the counts"
    )
    tree["status"]["cloudObjects"] = [automatic]
    assert advised("InferenceCluster", tree).startswith("follow the message to get")
