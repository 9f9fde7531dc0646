"""Invalid settings: all of them are rejected at once, each with its key and a reason."""

from typing import Any

import pytest
from pydantic import ValidationError

from api_types.environment import variable_of
from api_types.settings import NO_SETTINGS, Settings, bad_settings, setting_keys

# Every documented setting, and an alternative for each key that is not a setting.
SECTION_13 = {
    "workloads": [
        "namespace",
        "engineRequests",
        "shmSizeLimit",
        "terminationGraceSeconds",
        "tolerationKeys",
    ],
    "cache": [
        "hydrationImage",
        "clientVersion",
        "mountReadOnly",
        "maxAttempts",
        "activeDeadlineSeconds",
        "evictGrace",
    ],
    "epp": ["image", "failureMode", "metricsAuth"],
    "teardown": ["drainSeconds", "forceAfter"],
    "rollout": ["maxUnavailableReplicas", "surge"],
    "scheduler": ["type", "kaiMode"],
    "sidecar": ["image"],
    "routing": ["surface"],
    "secrets": ["propagation"],
    "monitoring": ["enabled"],
    "oci": ["kitImage"],
    "cluster": ["unreachableAfter"],
    "tracing": ["enabled"],
    "gateway": ["scheme"],
}


def problems(tree: dict[str, Any]) -> list[str]:
    with pytest.raises(ValidationError) as refused:
        Settings.model_validate(tree)
    return bad_settings(refused.value)


@pytest.mark.parametrize(
    "key", [f"{group}.{name}" for group, names in SECTION_13.items() for name in names]
)
def test_each_listed_setting_can_be_set_or_has_an_alternative(
    key: str,
) -> None:
    assert (key in setting_keys()) != (key in NO_SETTINGS)


@pytest.mark.parametrize("key", NO_SETTINGS)
def test_a_key_that_is_not_a_setting_has_an_alternative_in_file_and_environment(
    key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    group, _, name = key.partition(".")
    assert problems({group: {name: "x"}}) == [
        f"{key}: there is no such setting: {NO_SETTINGS[key]}"
    ]
    monkeypatch.setenv(variable_of(key), "x")
    assert problems({}) == [
        f"{variable_of(key)}: there is no such setting: {NO_SETTINGS[key]}"
    ]


# Images of pickers and sidecars must be of a tested release.
BAD = [
    ("images.mirror", "acme", "must be the host of a registry"),
    ("images.pullSecrets", ["Acme"], "must be the name of an object"),
    ("images.pullSecrets", ["a"] * 9, "at most 8 items"),
    ("workloads.namespace", "Shared", "must be `mirror` or a namespace"),
    ("workloads.namespace", "kube-system", "belongs to the platform"),
    ("workloads.engineRequests", {"cpu": "lots"}, "cpu: must be a quantity"),
    ("workloads.engineRequests", {"c p": "1"}, "must be a name"),
    ("workloads.shmSizeLimit", "8 GB", "must be a quantity"),
    ("workloads.terminationGraceSeconds", -1, "greater than or equal to 0"),
    ("workloads.terminationGraceSeconds", 10**9, "less than or equal to"),
    ("workloads.startupSeconds", "soon", "valid integer"),
    ("workloads.tolerationKeys", ["a b"], "must be a name"),
    ("workloads.refusedAnnotations", ["a b/"], "must be a name"),
    ("workloads.refusedAnnotations", ["*.a b/"], "must be a name"),
    ("workloads.refusedAnnotations", ["*.a.example"], "must be a name"),
    ("workloads.refusedAnnotations", ["*/"], "must be a name"),
    ("workloads.refusedAnnotations", ["."], "must be a name"),
    ("epp.image", "acme.example/epp:v0.8.1", "its tag must begin with one of v0.9"),
    (
        "epp.image",
        "acme.example/epp@sha256:" + "0" * 64,
        "its tag must begin with one of v0.9",
    ),
    ("epp.replicas", 0, "greater than or equal to 1"),
    ("epp.replicas", 99, "less than or equal to 16"),
    ("epp.failureMode", "Never", "'FailOpen' or 'FailClose'"),
    ("epp.metricsAuth", "maybe", "valid boolean"),
    ("epp.extraFlags", {"--v": "4"}, "'--v': the name of a flag is written"),
    ("epp.kvCacheUtilizationWeight", -1, "greater than or equal to 0"),
    ("sidecar.image", "acme.example/sidecar:v1", "its tag must begin with one of v0.9"),
    ("tracing.endpoint", "otel:4317", "must be an address that begins with http"),
    ("tracing.endpoint", "http://me:secret@otel:4317", "must not contain a user"),
    ("tracing.sampler", "some", "'always_on'"),
    ("tracing.samplerArgument", 2, "less than or equal to 1"),
    ("scheduler.kaiMode", "x", "'auto' or 'explicit'"),
    ("scheduler.priorityClass", "No Class", "must be the name of an object"),
    ("gateway.scheme", "ftp", "'http' or 'https'"),
    (
        "cache.hubEndpoint",
        "hub.acme.example",
        "must be an address that begins with http",
    ),
    (
        "cache.pipIndexUrl",
        "https://me:secret@pip.acme.example/simple",
        "must not contain a user",
    ),
    (
        "cache.pipIndexUrl",
        "https://pip.acme.example/ simple",
        "must be an address that begins with http",
    ),
    ("controlCluster.endpointDenyCidrs", ["10.0.0.0/8"] * 65, "at most 64 items"),
    ("teardown.drainSeconds", -1, "greater than or equal to 0"),
    ("temporal.address", "temporal", "must be host:port"),
    ("worker.listen", "127.0.0.1:99999", "must be host:port"),
]


@pytest.mark.parametrize(
    ("key", "value", "says"),
    BAD,
    ids=[f"{row[0]}: {row[2]}" for row in BAD],
)
def test_an_invalid_value_is_rejected_with_its_key(
    key: str, value: Any, says: str
) -> None:
    group, _, name = key.partition(".")
    (problem,) = problems({group: {name: value}})
    assert problem.startswith(key)
    assert says in problem
    assert "secret" not in problem


def test_numbers_and_booleans_are_accepted_for_text_in_pods(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read = Settings.model_validate(
        {
            "workloads": {"engineRequests": {"cpu": 0.5}},
            "epp": {"extraFlags": {"v": 4, "secure-serving": True}},
        }
    )
    assert (read.workloads.engine_requests, read.epp.extra_flags) == (
        {"cpu": "0.5"},
        {"v": "4", "secure-serving": "true"},
    )
    monkeypatch.setenv("MODELPLANE_WORKLOADS__ENGINE_REQUESTS__CPU", "3")
    assert Settings().workloads.engine_requests == {"cpu": "3"}


def test_all_problems_are_reported_at_once() -> None:
    tree: dict[str, dict[str, Any]] = {}
    for key, value, _ in BAD:
        group, _, name = key.partition(".")
        tree.setdefault(group, {})[name] = value
    said = problems({**tree, "tracng": {}, "rollout": {"surge": 1, "sruge": 1}})
    keys = {line.partition(":")[0].removesuffix(".0") for line in said}
    assert keys >= {key for key, _, _ in BAD} | {
        "tracng",
        "rollout.surge",
        "rollout.sruge",
    }


@pytest.mark.parametrize(
    ("tree", "says"),
    [
        ({"tracng": {}}, "tracng: there is no such setting; did you mean tracing?"),
        (
            {"epp": {"imag": "x"}},
            "epp.imag: there is no such setting; did you mean epp.image?",
        ),
        ({"nothing-like-it": 1}, "nothing-like-it: there is no such setting"),
    ],
)
def test_an_unknown_key_is_refused_with_the_nearest_one(
    tree: dict[str, Any], says: str
) -> None:
    assert problems(tree) == [says]
