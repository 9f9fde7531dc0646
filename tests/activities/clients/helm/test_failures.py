"""Each failure of helm becomes the error that says whether a retry can help.

Real helm provokes the failures; rare ones are given as text.
"""

import dataclasses
import itertools
import json
from typing import Any, NamedTuple

import pytest

from activities.clients.helm import failures
from activities.clients.helm.port import Release
from activities.clients.kubernetes.kubeconfig import ApiServerAccess
from api_types.errors import (
    ClusterUnreachable,
    CredentialsInvalid,
    InvalidInput,
    ModelplaneError,
    NameConflict,
    PermissionDenied,
    ReleasePending,
    ServerError,
    StackMissing,
    Throttled,
)
from tests.activities.clients.helm.conftest import CONFIG, OnCluster
from tests.activities.environment.cluster_under_test import eventually

DOING = "cluster eu-1: release lws-system/mp-lws: upgrade"
_NUMBERS = itertools.count()
SECRET = "hunter2-hunter2"  # noqa: S105


# By text


class Case(NamedTuple):
    """An output of helm, and the error that it becomes."""

    stderr: str
    error: type[ModelplaneError]


CASES = [
    Case(
        "UPGRADE FAILED: another operation (install/upgrade/rollback) is in progress",
        ReleasePending,
    ),
    Case(
        "INSTALLATION FAILED: cannot re-use a name that is still in use", ReleasePending
    ),
    Case(
        (
            "UPGRADE FAILED: create: failed to create: secrets "
            '"sh.helm.release.v1.mp-lws.v2" already exists'
        ),
        ReleasePending,
    ),
    Case(
        (
            'Internal error occurred: failed calling webhook "x": Post "https://y": '
            "dial tcp: connect: connection refused"
        ),
        ServerError,
    ),
    Case("etcdserver: request timed out", ServerError),
    Case(
        (
            'secrets "x" is forbidden: unable to create new content in namespace a '
            "because it is being terminated"
        ),
        ServerError,
    ),
    Case(
        'admission webhook "v.example.com" denied the request: connection refused is what I say',
        InvalidInput,
    ),
    Case(
        "ValidatingAdmissionPolicy 'p' with binding 'b' denied request: no",
        InvalidInput,
    ),
    Case(
        (
            "Kubernetes cluster unreachable: the server has asked for the client to "
            "provide credentials"
        ),
        CredentialsInvalid,
    ),
    Case("Unauthorized", CredentialsInvalid),
    Case(
        "the server has received too many requests and has asked us to try again later",
        Throttled,
    ),
    Case(
        'Kubernetes cluster unreachable: Get "https://x/version": dial tcp: lookup x: no such host',
        ClusterUnreachable,
    ),
    Case('Get "https://x": dial tcp 10.0.0.1:6443: i/o timeout', ClusterUnreachable),
    Case(
        'Get "https://x": dial tcp 10.0.0.1:6443: connect: no route to host',
        ClusterUnreachable,
    ),
    Case('Get "https://x": net/http: TLS handshake timeout', ClusterUnreachable),
    Case(
        'Get "https://x": read tcp 10.0.0.2:1->10.0.0.1:2: read: connection reset by peer',
        ClusterUnreachable,
    ),
    Case('Get "https://x": http2: client connection lost', ClusterUnreachable),
    Case('Get "https://x": EOF', ClusterUnreachable),
    Case(
        (
            'Namespace "a" in namespace "" exists and cannot be imported: invalid '
            "ownership metadata; label validation error"
        ),
        NameConflict,
    ),
    Case(
        'roles "x" is forbidden: User "u" cannot create resource "roles" in API group ""',
        PermissionDenied,
    ),
    Case(
        (
            'resource mapping not found: no matches for kind "Gateway" in version '
            '"gateway.networking.k8s.io/v1"'
        ),
        StackMissing,
    ),
    Case(
        "failed post-install: 1 error occurred:\n\t* timed out waiting for the condition",
        ServerError,
    ),
    Case("context deadline exceeded", ServerError),
    Case("something new", ServerError),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.stderr[:40])
def test_the_text_of_helm_decides(case: Case) -> None:
    error = failures.of_cluster(f"Error: {case.stderr}\n", DOING)
    assert type(error) is case.error
    assert error.message.startswith(f"{DOING}: {case.stderr.split()[0]}")
    assert "\n" not in error.message


def test_without_a_text_the_error_says_so() -> None:
    assert (
        failures.of_cluster("\n", DOING).message
        == f"{DOING}: helm failed and gave no reason"
    )
    assert failures.of_repository("", "chart lws").message.startswith(
        "chart lws: helm failed and gave no reason"
    )


def test_a_missing_release_is_not_a_failure() -> None:
    assert failures.is_not_found("Error: release: not found\n")
    assert failures.is_not_found(
        "Error: uninstall: Release not loaded: mp-lws: release: not found\n"
    )
    assert not failures.is_not_found('Error: namespaces "x" not found\n')


def test_a_revision_that_another_helm_removed_differs_from_other_missing_secrets() -> (
    None
):
    said = (
        "Error: uninstallation completed with 1 error(s): uninstall: Failed to purge "
        'the release: secrets "{}" not found\n'
    )
    assert failures.is_removed_meanwhile(said.format("sh.helm.release.v1.mp-demo.v1"))
    assert not failures.is_removed_meanwhile(said.format("other"))


WARNINGS = [
    (
        'level=WARN msg="unable to find exact version; falling back to closest '
        'available" error="connection refused"'
    ),
    "W1125 21:51:10.000000   12345 warnings.go:70] unauthorized is only a word here",
    "WARNING: Kubernetes configuration file is group-readable",
    "coalesce.go:237: warning: skipped value for lws.is forbidden: Not a table.",
]


@pytest.mark.parametrize("warning", WARNINGS)
def test_warnings_do_not_decide_and_do_not_push_the_error_out(warning: str) -> None:
    for said in ("Error: something new", "something new"):
        error = failures.of_cluster(f"{warning}\n" * 400 + f"{said}\n", DOING)
        assert type(error) is ServerError
        assert error.message == f"{DOING}: something new"


def test_warnings_alone_are_better_than_nothing() -> None:
    assert "unable to find" in failures.of_cluster(WARNINGS[0], DOING).message


@pytest.mark.slow
def test_an_error_is_bounded_and_on_one_line() -> None:
    error = failures.of_cluster("Error: first\n" + "  * line\n" * 100_000, DOING)
    assert error.message.startswith(f"{DOING}: first * line * line")
    assert len(error.message) < 2500


# Secrets

PEM = "-----BEGIN PRIVATE KEY-----\nc2VjcmV0LXNlY3JldA==\n-----END PRIVATE KEY-----"


@pytest.mark.parametrize(
    "stderr",
    [
        f"Error: Get https://x: Authorization: Bearer {SECRET}",
        f"Error: something with {SECRET} of the run",
        f'Error: Secret "a" is invalid: data[b]: Invalid value: "{SECRET[:7]}": no',
        (
            'Error: ConfigMap in version "v1" cannot be handled as a ConfigMap: '
            f"json: cannot unmarshal\n{SECRET[:7]} into map"
        ),
        (
            "Error: failed to create typed patch object (a/b; /v1, Kind=Secret): "
            f".data.x: expected string, got {SECRET[:7]}"
        ),
        (
            "Error: values don't meet the specifications of the schema:\nc:\n- at "
            f"'/a': '{SECRET[:7]}' does not match pattern '^x'"
        ),
        (
            "Error: values don't meet the specifications of the schema:\nc:\n- at "
            f"'/b': '{SECRET[:7]}\\'{SECRET[:7]}' is not valid email: no"
        ),
        f"Error: parse error at {PEM.replace('c2VjcmV0', SECRET[:7])}",
        f"WARNING: {SECRET[:7]}\nError: no",
    ],
    ids=range(9),
)
def test_nothing_secret_is_in_the_text(stderr: str) -> None:
    for error in (
        failures.of_cluster(stderr, DOING, [SECRET]),
        failures.of_cluster(stderr + "\n", DOING, [SECRET, PEM]),
    ):
        assert SECRET[:7] not in error.message


def test_text_without_secrets_stays() -> None:
    text = (
        "values don't meet the specifications of the schema(s) in the following "
        "chart(s): c: - at '/n': got string, want integer"
    )
    assert text in failures.of_cluster(f"Error: {text}", DOING, ["short"]).message
    text = 'Deployment.apps "a" is invalid: spec.replicas: Invalid value: -1'
    assert text in failures.of_cluster(f"Error: {text}", DOING).message


# With real helm


async def failed(
    here: OnCluster,
    error: type[ModelplaneError],
    wanted: Release,
    access: ApiServerAccess | None = None,
    verb: str = "upgrade",
) -> str:
    """Ensure a release that cannot be installed, and return the text of the error."""
    async with here.client(access) as helm:
        with pytest.raises(ModelplaneError) as raised:
            await helm.ensure(wanted)
    message = raised.value.message
    assert type(raised.value) is error, message
    assert message.startswith(
        f"cluster prod-eu: release {here.namespace}/{wanted.name}: {verb}: "
    )
    assert len(message) < 2500
    assert SECRET not in message
    return message


def templates(*documents: dict[str, Any]) -> dict[str, str]:
    return {
        f"{number}.yaml": json.dumps(document)
        for number, document in enumerate(documents)
    }


@pytest.mark.testbed("shared")
async def test_a_cluster_that_refuses_connections_is_unreachable(
    here: OnCluster,
) -> None:
    nowhere = dataclasses.replace(here.access, server="https://127.0.0.1:9")
    message = await failed(here, ClusterUnreachable, here.release(), nowhere, "get")
    assert "connection refused" in message
    assert "check that the API server runs" in message


@pytest.mark.testbed("shared")
async def test_a_cluster_whose_certificate_is_of_another_authority_is_unreachable(
    here: OnCluster,
) -> None:
    other = dataclasses.replace(here.access, authority="")
    assert "certificate" in await failed(
        here, ClusterUnreachable, here.release(), other, "get"
    )


@pytest.mark.testbed("shared")
async def test_a_token_that_is_not_accepted_is_a_credential_that_is_invalid(
    here: OnCluster,
) -> None:
    wrong = ApiServerAccess(here.access.server, here.access.authority, token=SECRET)
    assert "(401)" in await failed(
        here, CredentialsInvalid, here.release(), wrong, "get"
    )


def restricted(here: OnCluster, *rules: dict[str, Any]) -> ApiServerAccess:
    """Return a user of the namespace with these permissions."""
    from kubernetes import client  # noqa: PLC0415 - takes a second to load

    rbac, account = client.RbacAuthorizationV1Api(here.core.api_client), "restricted"
    here.core.create_namespaced_service_account(
        here.namespace, {"metadata": {"name": account}}
    )
    rbac.create_namespaced_role(
        here.namespace, {"metadata": {"name": account}, "rules": list(rules)}
    )
    subject = {"kind": "ServiceAccount", "name": account, "namespace": here.namespace}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": account}
    rbac.create_namespaced_role_binding(
        here.namespace,
        {"metadata": {"name": account}, "subjects": [subject], "roleRef": role},
    )
    token = here.core.create_namespaced_service_account_token(
        account, here.namespace, {"spec": {}}
    ).status.token
    return ApiServerAccess(here.access.server, here.access.authority, token=token)


SECRETS = {"apiGroups": [""], "resources": ["secrets"], "verbs": ["*"]}


@pytest.mark.testbed("shared")
async def test_a_user_without_read_access_to_releases_lacks_a_permission(
    here: OnCluster,
) -> None:
    access = restricted(here)
    message = await failed(here, PermissionDenied, here.release(), access, "get")
    assert (
        'cannot list resource "secrets"' in message
        or 'cannot get resource "secrets"' in message
    )
    assert access.token not in message


@pytest.mark.testbed("shared")
async def test_a_user_without_write_access_to_a_charts_objects_lacks_a_named_permission(
    here: OnCluster,
) -> None:
    message = await failed(
        here, PermissionDenied, here.release(), restricted(here, SECRETS)
    )
    assert "configmaps" in message
    assert "grant the permission" in message


RENDERING = {
    "fails on purpose": '{{ fail "two words" }}',
    "does not parse": "{{ if }}",
    "is no object": "- 1",
}


@pytest.mark.testbed("shared")
@pytest.mark.parametrize("template", RENDERING.values(), ids=RENDERING)
async def test_a_chart_that_does_not_render_is_invalid(
    here: OnCluster, template: str
) -> None:
    wanted = here.release(here.publish(templates={"a.yaml": template}), password=SECRET)
    await failed(here, InvalidInput, wanted)
    assert here.revisions() == {}
    if template != RENDERING["is no object"]:
        with pytest.raises(InvalidInput):
            await here.helm.render(wanted)


@pytest.mark.testbed("shared")
async def test_values_that_the_schema_refuses_are_invalid_and_not_quoted(
    here: OnCluster,
) -> None:
    schema = {
        "properties": {
            "password": {"pattern": "^x"},
            "number": {"type": "integer"},
            "mail": {"format": "email"},
        }
    }
    published = here.publish(templates={"a.yaml": CONFIG}, values_schema=schema)
    message = await failed(
        here,
        InvalidInput,
        here.release(published, password=SECRET, number="x", mail=SECRET),
    )
    assert "the schema(s)" in message
    assert "/password" in message
    assert "the chart does not render with these values" in message


@pytest.mark.testbed("shared")
async def test_an_object_of_another_release_or_without_owner_is_not_adopted(
    here: OnCluster,
) -> None:
    config = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "shared"},
        "data": {"of": "{{ .Release.Name }}"},
    }
    published = here.publish(templates=templates(config))
    await here.helm.ensure(here.release(published))
    message = await failed(here, NameConflict, here.release(published, name="mp-other"))
    assert 'ConfigMap "shared"' in message
    assert "mp-demo" in message
    assert here.config("shared") == {"of": "mp-demo"}
    here.core.create_namespaced_config_map(
        here.namespace, {"metadata": {"name": "mp-third"}, "data": {"of": "nobody"}}
    )
    assert "it belongs to another release or to nobody" in await failed(
        here, NameConflict, here.release(name="mp-third")
    )
    assert here.config("mp-third") == {"of": "nobody"}


INVALID = {
    "a value out of range": {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "a"},
        "spec": {"ports": [{"port": 70000}]},
    },
    "a field that does not exist": {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "a"},
        "spec": {"none": 1},
    },
}


@pytest.mark.testbed("shared")
@pytest.mark.parametrize("document", INVALID.values(), ids=INVALID)
async def test_an_object_that_the_api_server_refuses_is_invalid(
    here: OnCluster, document: dict[str, Any]
) -> None:
    await failed(
        here, InvalidInput, here.release(here.publish(templates=templates(document)))
    )


@pytest.mark.testbed("shared")
@pytest.mark.parametrize(
    "fields",
    [{"data": {"password": SECRET}}, {"stringData": {"password": {"of": SECRET}}}],
)
async def test_a_secret_that_is_refused_is_not_quoted(
    here: OnCluster, fields: dict[str, Any]
) -> None:
    document = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "a"},
        **fields,
    }
    await failed(
        here, InvalidInput, here.release(here.publish(templates=templates(document)))
    )


@pytest.mark.testbed("shared")
async def test_a_kind_that_is_not_served_is_missing_and_may_come(
    here: OnCluster,
) -> None:
    document = {
        "apiVersion": "gateway.example.com/v1",
        "kind": "Gateway",
        "metadata": {"name": "a"},
    }
    message = await failed(
        here, StackMissing, here.release(here.publish(templates=templates(document)))
    )
    assert 'no matches for kind "Gateway"' in message


@pytest.mark.testbed("shared")
async def test_a_policy_that_denies_is_quoted(here: OnCluster) -> None:
    """A ValidatingAdmissionPolicy, because a webhook would need a server."""
    from kubernetes import client  # noqa: PLC0415 - takes a second to load

    admission, name = (
        client.AdmissionregistrationV1Api(here.core.api_client),
        here.namespace,
    )
    spec = {
        "failurePolicy": "Fail",
        "matchConstraints": {
            "resourceRules": [
                {
                    "apiGroups": [""],
                    "apiVersions": ["v1"],
                    "operations": ["*"],
                    "resources": ["services"],
                }
            ]
        },
        "validations": [{"expression": "false", "message": "no services here"}],
    }
    admission.create_validating_admission_policy(
        {"metadata": {"name": name}, "spec": spec}
    )
    selector = {
        "namespaceSelector": {
            "matchLabels": {"kubernetes.io/metadata.name": here.namespace}
        }
    }
    binding = {
        "policyName": name,
        "validationActions": ["Deny"],
        "matchResources": selector,
    }
    admission.create_validating_admission_policy_binding(
        {"metadata": {"name": name}, "spec": binding}
    )
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "a"},
        "spec": {"ports": [{"port": 80}]},
    }
    published = here.publish(templates=templates(service))
    try:
        # The API server takes some time to notice a policy.
        async def denied() -> bool:
            try:
                await here.helm.ensure(here.release(published, at=next(_NUMBERS)))
            except InvalidInput as error:
                return "no services here" in error.message
            return False

        assert await eventually(denied)
    finally:
        admission.delete_validating_admission_policy_binding(name)
        admission.delete_validating_admission_policy(name)
