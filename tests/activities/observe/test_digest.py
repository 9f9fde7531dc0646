"""The digest covers exactly the fields that server-side apply records for us."""

from typing import Any, NamedTuple

import pytest

from activities.observe.digest import content_digest, overwritten_fields

FIELDS = {
    "f:metadata": {
        "f:labels": {"f:app.kubernetes.io/managed-by": {}},
        "f:annotations": {"f:modelplane.ai/generation": {}},
    },
    "f:spec": {
        "f:replicas": {},
        "f:template": {
            "f:spec": {
                "f:containers": {
                    'k:{"name":"engine"}': {
                        ".": {},
                        "f:name": {},
                        "f:image": {},
                        "f:args": {},
                    }
                }
            }
        },
        "f:ports": {'k:{"port":8000,"protocol":"TCP"}': {".": {}, "f:port": {}}},
        "f:finalizers": {'v:"keep"': {}},
    },
}


def an_object(**changes: Any) -> dict[str, Any]:
    """Return a stored object with all fields that others write into it."""
    engine = {
        "name": "engine",
        "image": changes.pop("image", "acme/vllm:1"),
        "args": ["--port", "8000"],
        "imagePullPolicy": "IfNotPresent",
    }
    entry = {
        "manager": "modelplane",
        "operation": "Apply",
        "apiVersion": "apps/v1",
        "time": "2026-01-01T00:00:00Z",
        "fieldsV1": FIELDS,
    }
    return {
        "apiVersion": "apps/v1",
        "kind": changes.pop("kind", "Deployment"),
        "metadata": {
            "name": "main",
            "uid": "1",
            "resourceVersion": "1",
            "generation": 1,
            "labels": {
                "app.kubernetes.io/managed-by": "modelplane",
                **changes.pop("labels", {}),
            },
            "annotations": {
                "modelplane.ai/generation": "1",
                "deployment.kubernetes.io/revision": "1",
            },
            "managedFields": changes.pop(
                "managed_fields",
                [
                    entry,
                    {
                        "manager": "kube-controller-manager",
                        "operation": "Update",
                        "fieldsV1": {},
                    },
                ],
            ),
            **changes.pop("metadata", {}),
        },
        "spec": {
            "replicas": 2,
            "progressDeadlineSeconds": 600,
            "template": {
                "spec": {
                    "containers": changes.pop("containers", [engine]),
                    "dnsPolicy": "ClusterFirst",
                }
            },
            "ports": [{"port": 8000, "protocol": "TCP", "nodePort": 31234}],
            "finalizers": ["keep"],
            **changes.pop("spec", {}),
        },
        "status": {"replicas": 1},
        **changes,
    }


def without(*path: str) -> list[dict[str, Any]]:
    """Return our entry after another manager took over a field."""
    fields: dict[str, Any] = _copy(FIELDS)
    inner = fields
    for step in path[:-1]:
        inner = inner[step]
    del inner[path[-1]]
    return [{"manager": "modelplane", "operation": "Apply", "fieldsV1": fields}]


def _copy(value: Any) -> Any:
    return (
        {name: _copy(inner) for name, inner in value.items()}
        if isinstance(value, dict)
        else value
    )


class Case(NamedTuple):
    """A stored object that differs from our apply, and whether that is drift."""

    story: str
    found: dict[str, Any]
    ours: bool


CASES = [
    Case("the status", an_object(status={"replicas": 2}), ours=False),
    Case(
        "identity and versions",
        an_object(metadata={"uid": "2", "resourceVersion": "9", "generation": 7}),
        ours=False,
    ),
    Case("a label of another manager", an_object(labels={"team": "a"}), ours=False),
    Case(
        "an annotation of a controller",
        an_object(metadata={"annotations": {"modelplane.ai/generation": "1"}}),
        ours=False,
    ),
    Case(
        "another default of a newer server",
        an_object(spec={"progressDeadlineSeconds": 7200}),
        ours=False,
    ),
    Case(
        "another container beside ours",
        an_object(
            containers=[
                {"name": "x"},
                an_object()["spec"]["template"]["spec"]["containers"][0],
            ]
        ),
        ours=False,
    ),
    Case("another image", an_object(image="acme/vllm:2"), ours=True),
    Case("our container is gone", an_object(containers=[]), ours=True),
    Case("another count", an_object(spec={"replicas": 1}), ours=True),
    Case(
        "the same count, but written by another manager",
        an_object(managed_fields=without("f:spec", "f:replicas")),
        ours=True,
    ),
    Case("our label is gone", an_object(metadata={"labels": {}}), ours=True),
    Case("our element of a set is gone", an_object(spec={"finalizers": []}), ours=True),
    Case(
        "a port of ours is another",
        an_object(spec={"ports": [{"port": 9000, "protocol": "TCP"}]}),
        ours=True,
    ),
    Case("nothing is ours any more", an_object(managed_fields=[]), ours=True),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.story)
def test_only_fields_that_an_apply_would_change_change_the_digest(case: Case) -> None:
    assert (content_digest(case.found) != content_digest(an_object())) is case.ours


def test_the_digest_does_not_depend_on_order() -> None:
    found = an_object()
    shuffled = {name: found[name] for name in reversed(found)}
    assert content_digest(shuffled) == content_digest(found)


def test_the_digest_of_a_secret_covers_its_fields_and_never_its_values() -> None:
    def a_secret(fields: dict[str, Any], **parts: Any) -> dict[str, Any]:
        entry = {
            "manager": "modelplane",
            "operation": "Apply",
            "fieldsV1": {"f:type": {}, "f:data": fields},
        }
        return {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": "x", "managedFields": [entry]},
            **parts,
        }

    whole = content_digest(
        a_secret({"f:token": {}}, type="Opaque", data={"token": "c2VjcmV0"})
    )
    assert content_digest(a_secret({"f:token": {}})) == whole, (
        "metadata alone is enough"
    )
    assert content_digest(a_secret({})) != whole, "another manager wrote the value"


def test_fields_taken_over_by_other_managers_are_named_with_their_managers() -> None:
    image: dict[str, Any] = {
        "f:template": {
            "f:spec": {"f:containers": {'k:{"name":"engine"}': {"f:image": {}}}}
        }
    }
    taken = _copy(FIELDS)
    del taken["f:spec"]["f:replicas"]
    del taken["f:spec"]["f:template"]["f:spec"]["f:containers"]['k:{"name":"engine"}'][
        "f:image"
    ]
    before = an_object(
        managed_fields=[
            {"manager": "modelplane", "operation": "Apply", "fieldsV1": taken},
            {
                "manager": "kubectl-scale",
                "operation": "Update",
                "fieldsV1": {"f:spec": {"f:replicas": {}}},
            },
            {
                "manager": "rewriter",
                "operation": "Apply",
                "fieldsV1": {"f:spec": {**image, "f:progressDeadlineSeconds": {}}},
            },
            {
                "manager": "kube-controller-manager",
                "operation": "Update",
                "subresource": "status",
                "fieldsV1": {"f:status": {}},
            },
        ]
    )
    assert overwritten_fields(before, an_object()) == [
        "spec.replicas by kubectl-scale",
        "spec.template.spec.containers[engine].image by rewriter",
    ]
    assert overwritten_fields(an_object(), an_object()) == []
    assert (
        overwritten_fields(
            an_object(managed_fields=without("f:spec", "f:replicas")), an_object()
        )
        == []
    )
