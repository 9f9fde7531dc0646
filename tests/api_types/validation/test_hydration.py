"""Admission of the hydration settings of a ModelCache."""

from typing import Any

import pytest

from tests.api_types.builders import a_cache, a_document, problems, warnings

PROXY = "http://proxy.acme.example:3128"
NOT_A_NAME = "not the name of an object; use lower-case letters, digits, '-' and '.', at most 253"
NOT_A_PROXY = (
    "not the address of a proxy; write http://host:port or https://host:port without "
    "a path"
)
A_LOGIN = (
    "credentials do not belong here: specs are kept in histories; put the whole "
    "address into a Secret and name it in urlSecret"
)
NOT_AN_EXCEPTION = "not a host, domain, address or network, such as .svc or 10.0.0.0/8"
ONE_SOURCE = "set exactly one of configMapKeyRef, secretKeyRef"
KEY = {"name": "proxy", "key": "url"}
WHOLE = {
    "proxy": {
        "http": PROXY,
        "https": "https://[2001:db8::1]:3128/",
        "noProxy": ["*", ".svc", "10.0.0.0/8", "[2001:db8::]/32", "host:80"],
    },
    "caBundle": {"secretKeyRef": {"name": "company-ca", "key": "ca.crt"}},
    "imagePullSecrets": [{"name": "mirror"}],
    "serviceAccountName": "model-reader",
    "timeoutSeconds": 60,
    "disableXet": True,
    "tolerations": [
        {"operator": "Exists"},
        {"key": "nvidia.com/gpu", "value": "a", "effect": "NoExecute"},
    ],
}


def hydrated(**hydration: Any) -> dict[str, Any]:
    return a_cache(hydration=hydration)


CASES: list[tuple[str, dict[str, Any], list[str]]] = [
    ("all of it", WHOLE, []),
    ("nothing of it", {}, []),
    ("a proxy from a Secret", {"proxy": {"urlSecret": KEY, "noProxy": [".svc"]}}, []),
    (
        "a proxy with a login",
        {"proxy": {"https": "http://robot:secret@proxy:3128"}},
        [f"proxy.https: {A_LOGIN}"],
    ),
    (
        "a proxy with a path",
        {"proxy": {"http": f"{PROXY}/x"}},
        [f"proxy.http: {NOT_A_PROXY}"],
    ),
    (
        "a proxy that a kubelet would expand",
        {"proxy": {"http": "http://$(HF_TOKEN):80"}},
        [f"proxy.http: {NOT_A_PROXY}"],
    ),
    (
        "a proxy with an invalid port",
        {"proxy": {"http": "http://proxy:99999"}},
        [f"proxy.http: {NOT_A_PROXY}"],
    ),
    (
        "a proxy of another kind",
        {"proxy": {"http": "socks5://proxy:1080"}},
        [f"proxy.http: {NOT_A_PROXY}"],
    ),
    (
        "no proxy at all",
        {"proxy": {"noProxy": [".svc"]}},
        ["proxy: names no proxy; set http, https or urlSecret"],
    ),
    (
        "two ways to name the proxy",
        {"proxy": {"urlSecret": KEY, "https": PROXY}},
        ["proxy.urlSecret: is used for both http and https; remove https"],
    ),
    (
        "a Secret next to both proxies",
        {"proxy": {"urlSecret": KEY, "http": PROXY, "https": PROXY}},
        ["proxy.urlSecret: is used for both http and https; remove http and https"],
    ),
    (
        "an exception with a comma",
        {"proxy": {"http": PROXY, "noProxy": ["a,b"]}},
        [f"proxy.noProxy[0]: {NOT_AN_EXCEPTION}"],
    ),
    (
        "an exception to expand",
        {"proxy": {"http": PROXY, "noProxy": ["$(X)"]}},
        [f"proxy.noProxy[0]: {NOT_AN_EXCEPTION}"],
    ),
    (
        "too many exceptions",
        {"proxy": {"http": PROXY, "noProxy": ["a"] * 65}},
        ["proxy.noProxy: at most 64 items, got 65"],
    ),
    (
        "a bundle without a source",
        {"caBundle": {}},
        [f"caBundle: {ONE_SOURCE}; got none"],
    ),
    (
        "a bundle from two places",
        {"caBundle": {"secretKeyRef": KEY, "configMapKeyRef": KEY}},
        [f"caBundle: {ONE_SOURCE}; got configMapKeyRef, secretKeyRef"],
    ),
    (
        "a reference that leads elsewhere",
        {"caBundle": {"secretKeyRef": {"name": "../x", "key": "a/b"}}},
        [
            f"caBundle.secretKeyRef.name: {NOT_A_NAME}",
            (
                "caBundle.secretKeyRef.key: not a key; use letters, digits, '-', '_' "
                "and '.', at most 253"
            ),
        ],
    ),
    (
        "a pull secret without a name",
        {"imagePullSecrets": [{"name": "A"}]},
        [f"imagePullSecrets[0].name: {NOT_A_NAME}"],
    ),
    (
        "too many pull secrets",
        {"imagePullSecrets": [{"name": "a"}] * 5},
        ["imagePullSecrets: at most 4 items, got 5"],
    ),
    (
        "a service account without a name",
        {"serviceAccountName": "a b"},
        [f"serviceAccountName: {NOT_A_NAME}"],
    ),
    (
        "a timeout of zero",
        {"timeoutSeconds": 0},
        ["timeoutSeconds: must be between 1 and 3600, got 0"],
    ),
    (
        "a timeout of a day",
        {"timeoutSeconds": 86_400},
        ["timeoutSeconds: must be between 1 and 3600, got 86400"],
    ),
    (
        "a toleration without a key",
        {"tolerations": [{"value": "a"}]},
        [
            (
                "tolerations[0]: operator Equal (the default) needs a key; use "
                "operator: Exists to match all taints"
            )
        ],
    ),
    (
        "a toleration of any value with a value",
        {"tolerations": [{"operator": "Exists", "key": "a", "value": "b"}]},
        ["tolerations[0].value: operator Exists takes no value"],
    ),
    (
        "a toleration of no taint",
        {"tolerations": [{"key": "a b"}]},
        ['tolerations[0].key: "a b" is not a valid Kubernetes label key'],
    ),
    (
        "a toleration for a time",
        {"tolerations": [{"key": "a", "tolerationSeconds": 1}]},
        [
            "tolerations[0].tolerationSeconds: unknown field; an evicted Job is started again"
        ],
    ),
    (
        "too many tolerations",
        {"tolerations": [{"operator": "Exists"}] * 17},
        ["tolerations: at most 16 items, got 17"],
    ),
]


@pytest.mark.parametrize(
    ("hydration", "expected"),
    [case[1:] for case in CASES],
    ids=[case[0] for case in CASES],
)
def test_hydration_is_checked_with_the_path_and_the_next_step(
    hydration: dict[str, Any], expected: list[str]
) -> None:
    found = problems(hydrated(**hydration))
    assert found == [f"spec.hydration.{problem}" for problem in expected]
    assert not any("secret@" in problem for problem in found), (
        "a possible credential is not repeated"
    )


def test_settings_of_the_hub_are_a_warning_for_another_source() -> None:
    oci = {"image": "registry.example/models/qwen:1.0", "sizeGiB": 1}
    document = a_document(
        "ModelCache",
        "w",
        {
            "source": "OCI",
            "oci": oci,
            "hydration": {"timeoutSeconds": 5, "disableXet": True},
        },
    )
    assert warnings(document) == [
        "spec.hydration.timeoutSeconds: setting has no effect on source OCI",
        "spec.hydration.disableXet: setting has no effect on source OCI",
    ]
    assert warnings(hydrated(timeoutSeconds=5, disableXet=True)) == []
