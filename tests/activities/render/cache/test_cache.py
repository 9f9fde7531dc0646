"""The objects of a ModelCache on one cluster."""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from activities.render.cache import container as hydrating
from activities.render.cache.access import PlainHttpRefused
from activities.render.cache.hydration import (
    CLIENT_REQUIREMENTS,
    HUGGINGFACE,
    OCI,
    OCI_BY_TAG,
    S3,
    S3_REQUIREMENTS,
)
from activities.render.cache.volumes import (
    NoSharedStorageClass,
    ServiceAccountRefused,
    artifact_key,
    claim_name,
    render_cache,
)
from activities.render.inputs.facts import CacheInput, ClusterInput
from activities.render.inputs.settings import RenderSettings
from activities.render.objects.rendered import Rendered
from activities.render.objects.teardown import CACHE_STEPS
from activities.render.replica import InvalidSpec
from api_types.pins import images
from tests.activities.render.builders import keys, nothings, the

COMMIT = "0123456789abcdef0123456789abcdef01234567"
PATTERNS = ("allowPatterns", "ignorePatterns")
DIGEST = "sha256:" + "ab" * 32


def a_cache(**fields: Any) -> CacheInput:
    """Return a ModelCache `ml-team/qwen` of `Qwen/Qwen3-8B` with 20 GiB.

    Fields of its block may be given directly.
    """
    block = {"repo": "Qwen/Qwen3-8B", "sizeGiB": 20}
    block |= {
        name: fields.pop(name)
        for name in ("repo", "revision", "authSecret", "sizeGiB", *PATTERNS)
        if name in fields
    }
    block = {name: value for name, value in block.items() if value is not None}
    spec = {"source": "HuggingFace", "huggingFace": block}
    identity = {
        "namespace": "ml-team",
        "name": "qwen",
        "uid": "uid-c",
        "generation": 1,
        "cluster": "eu-1",
    }
    if "commit" in fields:
        fields["revision"] = fields.pop("commit")
    return CacheInput(**{**identity, "spec": spec, **fields})


def an_oci_cache(**fields: Any) -> CacheInput:
    block = {"image": "registry.acme.example/models/qwen:1.0", "sizeGiB": 40}
    block |= {
        name: fields.pop(name)
        for name in ("image", "pullSecret", "plainHTTP", "scratch")
        if name in fields
    }
    return a_cache(spec={"source": "OCI", "oci": block}, **fields)


def an_s3_cache(**fields: Any) -> CacheInput:
    block = {
        "region": "eu-central-1",
        "bucket": "models",
        "prefix": "qwen",
        "sizeGiB": 40,
    }
    block |= {
        name: fields.pop(name)
        for name in (
            "region",
            "bucket",
            "prefix",
            "endpoint",
            "pathStyle",
            "authSecret",
        )
        if name in fields
    }
    return a_cache(spec={"source": "S3", "s3": block}, **fields)


def staged(
    cache: CacheInput, facts: Mapping[str, Any] | None = None, **settings: Any
) -> Rendered:
    cluster = ClusterInput.assumed(
        **{"name": "eu-1", "storage_class_name": "modelplane-rwx", **(facts or {})}
    )
    return render_cache(cache, cluster, RenderSettings(**settings))


def job(rendered: Rendered) -> Any:
    return the(rendered, "cache-hydrate")


def container(rendered: Rendered) -> Any:
    return job(rendered)["spec"]["template"]["spec"]["containers"][0]


def env(rendered: Rendered) -> dict[str, Any]:
    return {
        entry["name"]: entry.get("value", entry.get("valueFrom"))
        for entry in container(rendered)["env"]
    }


@pytest.mark.parametrize(
    "storage_class",
    ["modelplane-rwx", "modelplane-rwx-efs", "modelplane-rwx-fs"],
    ids=str,
)
def test_the_volume_is_shared_and_of_the_clusters_class(storage_class: str) -> None:
    rendered = staged(a_cache(), {"storage_class_name": storage_class})
    claim = the(rendered, "cache-claim")
    assert claim["spec"] == {
        "accessModes": ["ReadWriteMany"],
        "storageClassName": storage_class,
        "resources": {"requests": {"storage": "20Gi"}},
    }
    assert claim["metadata"]["name"] == rendered.workload_name == claim_name(a_cache())
    assert (
        claim["metadata"]["labels"].items()
        >= {
            "modelplane.ai/modelcache": "qwen",
            "modelplane.ai/cache": rendered.workload_name,
            "app.kubernetes.io/component": "cache",
        }.items()
    )


def test_a_cluster_without_a_class_cannot_stage() -> None:
    with pytest.raises(
        NoSharedStorageClass, match="cluster eu-1 reports no storage class for caches"
    ):
        staged(a_cache(), {"storage_class_name": ""})


def test_every_cluster_downloads_the_resolved_commit() -> None:
    cache = a_cache(revision="main", commit=COMMIT)
    assert env(staged(cache))["MODELPLANE_REVISION"] == COMMIT
    assert artifact_key(cache) == artifact_key(a_cache(commit=COMMIT))


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        pytest.param(
            {"repo": "a/b; rm -rf x"},
            "repo must be 'owner/name' or 'name'",
            id="shell in the repo",
        ),
        pytest.param({"repo": "a/b/c"}, "repo must be", id="three parts"),
        pytest.param({"repo": "$(whoami)"}, "repo must be", id="an expansion"),
        pytest.param({"repo": None}, "huggingFace: repo is missing", id="no repo"),
        pytest.param(
            {"revision": "-x"},
            "revision must be letters",
            id="a flag as revision",
        ),
        pytest.param(
            {"revision": "a b"},
            "revision must be letters",
            id="a blank in the revision",
        ),
        pytest.param(
            {"commit": "-x"},
            "revision must be letters",
            id="a flag as resolved revision",
        ),
        pytest.param(
            {"allowPatterns": ["$(whoami)"]},
            "allowPatterns must hold patterns of files",
            id="an expansion as pattern",
        ),
        pytest.param(
            {"ignorePatterns": ["a\nb"]},
            "ignorePatterns must hold patterns of files",
            id="a line break in a pattern",
        ),
        pytest.param({"sizeGiB": None}, "sizeGiB is missing", id="no size"),
        pytest.param(
            {"sizeGiB": 0}, "sizeGiB must be between 1 and 100000, is 0", id="no room"
        ),
        pytest.param(
            {"spec": {"source": "NGC"}},
            "source must be one of HuggingFace, OCI, S3, is 'NGC'",
            id="another source",
        ),
        pytest.param(
            {"spec": {}}, "source must be one of HuggingFace, OCI, S3", id="no source"
        ),
    ],
)
def test_an_invalid_source_is_refused(fields: dict[str, Any], problem: str) -> None:
    with pytest.raises(InvalidSpec, match=problem):
        staged(a_cache(**fields))


def test_the_program_is_a_constant_and_values_are_environment_variables() -> None:
    first, second = (
        staged(a_cache(commit=COMMIT)),
        staged(a_cache(repo="acme/other", revision="v2")),
    )
    assert (
        container(first)["command"]
        == container(second)["command"]
        == ["python3", "-c", HUGGINGFACE]
    )
    assert "args" not in container(first)
    assert env(first) == {
        "MODELPLANE_ARTEFACT_KEY": artifact_key(a_cache(commit=COMMIT)),
        "MODELPLANE_TARGET": "/mnt/artifact",
        "MODELPLANE_REVISION": COMMIT,
        "MODELPLANE_REPO": "Qwen/Qwen3-8B",
        "MODELPLANE_CLIENT_REQUIREMENTS": CLIENT_REQUIREMENTS,
        "HF_HOME": "/mnt/artifact/.modelplane/huggingface",
        "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    }


def test_the_selected_files_are_part_of_the_artifact_and_reach_the_program_as_json() -> (
    None
):
    cache = a_cache(
        allowPatterns=["*.safetensors", "*.json"], ignorePatterns=["original/*"]
    )
    given = {
        name: json.loads(value)
        for name, value in env(staged(cache)).items()
        if name.endswith("_PATTERNS")
    }
    assert given == {
        "MODELPLANE_ALLOW_PATTERNS": ["*.json", "*.safetensors"],
        "MODELPLANE_IGNORE_PATTERNS": ["original/*"],
    }
    assert (
        container(staged(cache))["command"] == container(staged(a_cache()))["command"]
    )
    reordered = a_cache(
        allowPatterns=["*.json", "*.safetensors", "*.json"],
        ignorePatterns=["original/*"],
    )
    assert artifact_key(cache) == artifact_key(reordered)
    others = [
        a_cache(),
        a_cache(allowPatterns=["original/*"]),
        a_cache(ignorePatterns=["original/*"]),
    ]
    assert len({artifact_key(each) for each in (cache, *others)}) == 4


def test_without_its_token_only_the_volume_is_rendered() -> None:
    rendered = staged(a_cache(authSecret={"name": "hub"}, credential_missing=True))
    assert keys(rendered) == ["cache-claim"]
    assert rendered.held == "AuthSecretMissing"
    assert rendered.copies == ()


def test_the_token_is_copied_by_its_one_key_and_read_from_the_copy() -> None:
    rendered = staged(a_cache(authSecret={"name": "hub", "key": "pat"}))
    copy = rendered.copies[0]
    assert (copy.source_namespace, copy.source_name, copy.keys) == (
        "ml-team",
        "hub",
        ("pat",),
    )
    assert copy.name == f"{rendered.workload_name}-auth"
    assert "data" not in copy.manifest
    assert env(rendered)["HF_TOKEN"] == {
        "secretKeyRef": {"name": copy.name, "key": "pat"}
    }
    assert (
        env(staged(a_cache(authSecret={"name": "hub"})))["HF_TOKEN"]["secretKeyRef"][
            "key"
        ]
        == "HF_TOKEN"
    )
    assert "HF_TOKEN" not in env(staged(a_cache()))


def test_once_staged_only_the_volume_is_rendered() -> None:
    rendered = staged(
        a_cache(authSecret={"name": "hub"}, ready=True, credential_missing=True)
    )
    assert keys(rendered) == ["cache-claim"]
    assert (rendered.copies, rendered.held) == ((), "")


def test_final_exit_codes_end_the_job_and_others_are_retried() -> None:
    rendered = staged(a_cache())
    spec = job(rendered)["spec"]
    assert (spec["backoffLimit"], spec["activeDeadlineSeconds"]) == (3, 21600)
    assert "ttlSecondsAfterFinished" not in spec
    assert spec["podFailurePolicy"]["rules"] == [
        {
            "action": "FailJob",
            "onExitCodes": {
                "containerName": "hydrate",
                "operator": "In",
                "values": [41, 42, 43],
            },
        },
        {
            "action": "Ignore",
            "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}],
        },
    ]
    pod = spec["template"]["spec"]
    assert pod["restartPolicy"] == "Never"
    assert pod["automountServiceAccountToken"] is False
    assert pod["securityContext"] == {"seccompProfile": {"type": "RuntimeDefault"}}
    assert container(rendered)["resources"] == {
        "requests": {"cpu": "1", "memory": "2Gi"}
    }
    assert container(rendered)["securityContext"] == {"allowPrivilegeEscalation": False}
    assert job(rendered)["metadata"]["name"] == f"{rendered.workload_name}-hyd"
    assert [item.key for item in rendered.objects if item.create_only] == [
        "cache-hydrate"
    ]


def test_another_commit_gets_a_volume_of_its_own() -> None:
    assert claim_name(a_cache(commit=COMMIT)) != claim_name(
        a_cache(commit=COMMIT[::-1])
    )
    assert claim_name(a_cache(commit=COMMIT)) == claim_name(
        a_cache(commit=COMMIT, sizeGiB=40, ready=True)
    )


def test_an_image_that_pods_mount_is_another_artifact_and_needs_no_object() -> None:
    spec = {
        "source": "OCI",
        "oci": {"image": "registry.example/m@sha256:" + "ab" * 32, "sizeGiB": 20},
    }
    staged, pulled = (
        CacheInput("ml", "m", "u", 1, "eu", {**spec, **more})
        for more in ({}, {"volume": {"image": True}})
    )
    assert artifact_key(staged) != artifact_key(pulled)
    rendered = render_cache(pulled, ClusterInput.assumed("eu"), RenderSettings())
    assert (rendered.objects, rendered.copies, rendered.held) == ((), (), "")


def test_no_two_caches_share_a_volume() -> None:
    places = [
        ("ml", "team-qwen"),
        ("ml-team", "qwen"),
        ("ml", "qwen"),
        ("ml-team-qwen", "qwen"),
    ]
    claims = {
        claim_name(a_cache(namespace=namespace, name=name))
        for namespace, name in places
    }
    assert len(claims) == 4


def test_an_image_is_unpacked_by_digest() -> None:
    rendered = staged(an_oci_cache(commit=DIGEST))
    assert container(rendered)["image"] == "ghcr.io/kitops-ml/kitops:v1.11.0"
    assert container(rendered)["command"] == ["/bin/sh", "-c", OCI]
    assert container(staged(an_oci_cache()))["command"] == ["/bin/sh", "-c", OCI_BY_TAG]
    assert env(rendered) == {
        "MODELPLANE_ARTEFACT_KEY": artifact_key(an_oci_cache(commit=DIGEST)),
        "MODELPLANE_TARGET": "/mnt/artifact",
        "MODELPLANE_REVISION": DIGEST,
        "MODELPLANE_IMAGE": f"registry.acme.example/models/qwen@{DIGEST}",
        "MODELPLANE_PLAIN_HTTP": "false",
        "KITOPS_HOME": "/mnt/artifact/.modelplane/kit",
    }
    assert (
        env(staged(an_oci_cache(plainHTTP=True), allow_plain_http=True))[
            "MODELPLANE_PLAIN_HTTP"
        ]
        == "true"
    )


def test_a_bucket_is_staged_by_a_constant_program_without_the_identity_of_the_node() -> (
    None
):
    rendered = staged(an_s3_cache(commit=DIGEST, authSecret={"name": "aws"}))
    assert container(rendered)["command"] == ["python3", "-c", S3]
    reference = {
        "secretKeyRef": {"name": f"{rendered.workload_name}-auth", "key": "credentials"}
    }
    assert env(rendered) == {
        "MODELPLANE_ARTEFACT_KEY": artifact_key(an_s3_cache(commit=DIGEST)),
        "MODELPLANE_TARGET": "/mnt/artifact",
        "MODELPLANE_REVISION": DIGEST,
        "MODELPLANE_S3_ENDPOINT": "https://s3.eu-central-1.amazonaws.com",
        "MODELPLANE_S3_REGION": "eu-central-1",
        "MODELPLANE_S3_BUCKET": "models",
        "MODELPLANE_S3_PREFIX": "qwen/",
        "MODELPLANE_S3_ADDRESSING": "virtual",
        "MODELPLANE_CLIENT_REQUIREMENTS": S3_REQUIREMENTS,
        "AWS_EC2_METADATA_DISABLED": "true",
        "MODELPLANE_S3_CREDENTIALS": reference,
    }
    assert rendered.copies[0].keys == ("credentials",)
    assert "MODELPLANE_S3_CREDENTIALS" not in env(staged(an_s3_cache()))


def test_a_bucket_is_addressed_as_its_server_wants_it() -> None:
    assert (
        env(staged(an_s3_cache(pathStyle=True)))["MODELPLANE_S3_ADDRESSING"] == "path"
    )
    # A certificate for all buckets of a server does not cover a name with a dot before
    # the host.
    assert (
        env(staged(an_s3_cache(bucket="models.acme")))["MODELPLANE_S3_ADDRESSING"]
        == "path"
    )
    elsewhere = env(
        staged(
            an_s3_cache(
                endpoint="https://storage.googleapis.com", region=None, prefix="a/b/"
            )
        )
    )
    assert [
        elsewhere[f"MODELPLANE_S3_{name}"] for name in ("ENDPOINT", "REGION", "PREFIX")
    ] == [
        "https://storage.googleapis.com",
        "us-east-1",
        "a/b/",
    ]


def test_another_listing_another_folder_or_server_is_another_artifact() -> None:
    caches = [
        an_s3_cache(),
        an_s3_cache(commit=DIGEST),
        an_s3_cache(prefix="other"),
        an_s3_cache(bucket="other"),
        an_s3_cache(endpoint="https://minio.example"),
    ]
    assert len({artifact_key(each) for each in caches}) == len(caches)
    assert artifact_key(an_s3_cache(prefix="qwen/")) == artifact_key(
        an_s3_cache(pathStyle=True, authSecret={"name": "aws"})
    )


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"bucket": "UP"}, "bucket must be"),
        ({"bucket": "a..b"}, "bucket must be"),
        ({"prefix": "a/../b"}, "prefix must be folders"),
        ({"prefix": "$(X)"}, "prefix must be folders"),
        ({"prefix": "/a"}, "prefix must be folders"),
        ({"endpoint": "https://user:password@host"}, "endpoint must be"),
        ({"endpoint": "https://host/path"}, "endpoint must be"),
        ({"endpoint": "ftp://host"}, "endpoint must be"),
        ({"region": "a b"}, "region must be"),
        ({"region": None}, "region is missing"),
        ({"commit": "main"}, "digest of the listing must be"),
    ],
)
def test_an_invalid_bucket_folder_is_refused(
    fields: dict[str, Any], problem: str
) -> None:
    with pytest.raises(InvalidSpec, match=problem):
        staged(an_s3_cache(**fields))


def test_a_bucket_without_tls_needs_a_setting_of_the_operator() -> None:
    plain = an_s3_cache(endpoint="http://minio.minio:9000")
    with pytest.raises(PlainHttpRefused, match=r"s3\.allowPlainHttp"):
        staged(plain, allow_plain_http=True)
    assert staged(plain, allow_plain_s3=True).objects
    assert staged(replace(plain, ready=True)).objects


def test_plain_http_is_refused_unless_the_operator_allows_it_and_not_once_it_is_staged() -> (
    None
):
    with pytest.raises(PlainHttpRefused, match=r"oci\.allowPlainHttp"):
        staged(an_oci_cache(plainHTTP=True))
    assert staged(replace(an_oci_cache(plainHTTP=True), ready=True)).objects


@pytest.mark.parametrize("image", ["registry.acme.example:5000/models/qwen", "qwen"])
def test_a_tag_that_moves_to_the_same_digest_is_the_same_artifact(
    image: str,
) -> None:
    assert artifact_key(
        an_oci_cache(image=f"{image}:1", commit=DIGEST)
    ) == artifact_key(an_oci_cache(image=f"{image}@{DIGEST}"))


@pytest.mark.parametrize(
    ("image", "problem"),
    [
        ("UP PER", "image must be a reference"),
        ("a/b:$(x)", "image must be a reference"),
        ("-x", "image must be a reference"),
        ("x@sha256:12", "its digest must be 'sha256:' and 64 hex digits"),
    ],
)
def test_an_image_reference_must_look_like_one(image: str, problem: str) -> None:
    with pytest.raises(InvalidSpec, match=problem):
        staged(an_oci_cache(image=image))


def test_the_pull_secret_becomes_the_docker_config_of_the_unpacker() -> None:
    rendered = staged(an_oci_cache(pullSecret="registry"))
    copy = rendered.copies[0]
    assert (copy.keys, copy.manifest["type"]) == ((), "kubernetes.io/dockerconfigjson")
    volumes = job(rendered)["spec"]["template"]["spec"]["volumes"]
    items = [{"key": ".dockerconfigjson", "path": "config.json"}]
    assert {
        "name": "registry",
        "secret": {"secretName": copy.name, "items": items},
    } in volumes
    assert {"name": "registry", "mountPath": "/.docker", "readOnly": True} in container(
        rendered
    )["volumeMounts"]
    assert env(rendered)["DOCKER_CONFIG"] == "/.docker"


def test_scratch_space_may_be_on_the_node() -> None:
    rendered = staged(an_oci_cache(scratch="node"))
    assert env(rendered)["KITOPS_HOME"] == "/scratch/kit"
    assert {"name": "scratch", "emptyDir": {}} in job(rendered)["spec"]["template"][
        "spec"
    ]["volumes"]


def test_hydration_waits_in_the_tenants_queue() -> None:
    kueue, kai = (
        staged(a_cache(), {"scheduler_type": "kueue"}),
        staged(a_cache(), {"scheduler_type": "kai"}),
    )
    assert (
        job(kueue)["metadata"]["labels"]["kueue.x-k8s.io/queue-name"]
        == "modelplane-ml-team"
    )
    assert "suspend" not in job(kueue)["spec"]
    assert job(kai)["spec"]["template"]["spec"]["schedulerName"] == "kai-scheduler"
    assert (
        job(kai)["spec"]["template"]["metadata"]["labels"]["kai.scheduler/queue"]
        == "modelplane-ml-team"
    )


def test_cache_and_replica_agree_on_the_namespace() -> None:
    assert staged(a_cache()).namespace == "ml-team"
    assert staged(a_cache(), workload_namespace="inference").namespace == "inference"


@pytest.mark.parametrize(
    "cache",
    [a_cache(), an_oci_cache(scratch="node", pullSecret="r")],
    ids=["hub", "oci"],
)
def test_nothing_unset_is_ever_written(cache: CacheInput) -> None:
    for item in staged(cache).objects:
        assert list(nothings(item.manifest, item.key)) == []


def test_the_job_of_a_cache_is_deleted_first_and_its_volume_last() -> None:
    rendered = staged(a_cache(authSecret={"name": "hub"}))
    found = [
        *((copy.inventory_key, copy.kind) for copy in rendered.copies),
        *((item.key, item.manifest["kind"]) for item in rendered.objects),
    ]
    gone = [
        entry
        for step in CACHE_STEPS
        for entry in found
        if entry[0].startswith(step.inventory_prefixes)
    ]
    assert gone == [
        ("cache-hydrate", "Job"),
        ("cache-auth", "Secret"),
        ("cache-claim", "PersistentVolumeClaim"),
    ]
    for step, (_, kind) in zip(CACHE_STEPS, gone, strict=True):
        assert [name for _, name in step.kinds] == [kind]
    assert ("v1", "Pod") in CACHE_STEPS[0].wait_kinds


def test_an_existing_volume_keeps_its_class_and_size_where_they_are_immutable() -> None:
    claim = the(
        staged(a_cache(sizeGiB=40, volume_class="older", volume_size="20Gi")),
        "cache-claim",
    )
    assert claim["spec"]["storageClassName"] == "older"
    assert claim["spec"]["resources"] == {"requests": {"storage": "20Gi"}}
    assert keys(staged(a_cache(volume_class="older"), {"storage_class_name": ""})) == [
        "cache-claim",
        "cache-hydrate",
    ]


def test_a_volume_of_another_kind_is_claimed_as_the_spec_says() -> None:
    spec = {
        **a_cache().spec,
        "volume": {"accessMode": "ReadWriteOnce", "storageClassName": "fast-ssd"},
    }
    claim = the(staged(a_cache(spec=spec), {"storage_class_name": ""}), "cache-claim")
    assert (claim["spec"]["accessModes"], claim["spec"]["storageClassName"]) == (
        ["ReadWriteOnce"],
        "fast-ssd",
    )
    assert claim_name(a_cache(spec=spec)) == claim_name(a_cache())
    kept = the(
        staged(a_cache(spec=spec, volume_class="older", volume_access="ReadWriteMany")),
        "cache-claim",
    )
    assert (kept["spec"]["accessModes"], kept["spec"]["storageClassName"]) == (
        ["ReadWriteMany"],
        "older",
    )
    with pytest.raises(
        InvalidSpec,
        match="accessMode must be one of ReadWriteMany, ReadWriteOnce, is 'Any'",
    ):
        staged(a_cache(spec={**a_cache().spec, "volume": {"accessMode": "Any"}}))


def hash_of(rendered: Rendered) -> str:
    found: str = job(rendered)["metadata"]["annotations"]["modelplane.ai/template-hash"]
    return found


@pytest.mark.parametrize(
    "cache",
    [a_cache(), an_oci_cache(), an_s3_cache()],
    ids=["HuggingFace", "OCI", "S3"],
)
def test_a_release_with_other_programs_makes_no_different_job(
    cache: CacheInput, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A different Job would replace a running one."""
    before = staged(cache)
    for pin in ("HYDRATION", "KIT"):
        monkeypatch.setattr(images, pin, "registry.acme.example/next:2")
    for text in (
        "HUGGINGFACE",
        "OCI",
        "OCI_BY_TAG",
        "S3",
        "CLIENT_REQUIREMENTS",
        "S3_REQUIREMENTS",
    ):
        monkeypatch.setattr(hydrating, text, "another")
    after = staged(cache, hydration_image=images.HYDRATION, kit_image=images.KIT)
    assert container(after)["command"] != container(before)["command"]
    assert container(after)["image"] != container(before)["image"]
    assert hash_of(after) == hash_of(before)


def test_a_job_is_distinguished_from_a_different_one_by_its_hash_alone() -> None:
    assert hash_of(staged(a_cache())) == hash_of(staged(a_cache(generation=2)))
    assert hash_of(staged(a_cache())) != hash_of(
        staged(a_cache(), hydration_image="mirror.acme.example/python:3.11")
    )


def test_the_client_uses_the_configured_mirror_of_the_hub() -> None:
    assert (
        env(staged(a_cache(), hub_endpoint="http://hub.acme.example"))["HF_ENDPOINT"]
        == "http://hub.acme.example"
    )


# The network of the Jobs


def networked(**hydration: Any) -> CacheInput:
    return a_cache(
        spec={
            "source": "HuggingFace",
            "huggingFace": {"repo": "Qwen/Qwen3-8B", "sizeGiB": 20},
            "hydration": hydration,
        }
    )


def test_an_empty_block_of_the_network_changes_no_object() -> None:
    plain = staged(a_cache())
    assert staged(networked()).objects == plain.objects
    assert staged(networked()).copies == plain.copies


def test_another_network_is_another_job_and_the_same_artifact() -> None:
    plain, other = staged(a_cache()), staged(networked(timeoutSeconds=60))
    hashes = [
        job(each)["metadata"]["annotations"]["modelplane.ai/template-hash"]
        for each in (plain, other)
    ]
    assert hashes[0] != hashes[1]
    assert plain.workload_name == other.workload_name


def test_without_the_network_secrets_only_the_volume_is_rendered() -> None:
    cache = networked(
        caBundle={"configMapKeyRef": {"name": "company-ca", "key": "bundle.pem"}}
    )
    held = staged(replace(cache, credential_missing=True))
    assert (keys(held), held.held, held.copies) == (
        ["cache-claim"],
        "AuthSecretMissing",
        (),
    )
    assert keys(staged(replace(cache, credential_missing=True, ready=True))) == [
        "cache-claim"
    ]
    assert [copy.inventory_key for copy in staged(cache).copies] == ["cache-auth-ca"]


def test_a_login_of_a_proxy_is_refused_in_a_stored_spec_too() -> None:
    with pytest.raises(InvalidSpec, match="https must hold no credentials") as caught:
        staged(networked(proxy={"https": "http://robot:pa55word@proxy:3128"}))
    assert "pa55word" not in str(caught.value)


def test_a_service_account_is_refused_in_a_namespace_that_tenants_share() -> None:
    cache = networked(serviceAccountName="model-reader")
    assert (
        job(staged(cache))["spec"]["template"]["spec"]["serviceAccountName"]
        == "model-reader"
    )
    with pytest.raises(
        ServiceAccountRefused, match="where all tenants share namespace models"
    ):
        staged(cache, workload_namespace="models")
    assert keys(staged(replace(cache, ready=True), workload_namespace="models")) == [
        "cache-claim"
    ]
