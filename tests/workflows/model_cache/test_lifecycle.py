"""A cache on a real API server.

A real Job fills a real volume, real pods wait for it, and the store's Secrets reach
both. The other lifecycles of caches are in tests/simulation/lives/test_caches.py, in
virtual time.
"""

import base64
import json
import uuid

import pytest

from activities.secrets.store import SecretStore, StoredSecret
from tests.environment.local_hub import LocalHub, Repo
from tests.workflows.environment.caches import (
    clean_up,
    clusters_of,
    end_download,
    engines,
    in_cluster,
    mounted,
    no_room_for_jobs,
    now,
    objects,
)
from tests.workflows.environment.harness import (
    ControlPlane,
    a_cache,
    a_deployment,
    condition,
    eventually,
    message,
    reason,
    said,
)

pytestmark = pytest.mark.testbed

DOCKER = "kubernetes.io/dockerconfigjson"


@pytest.fixture
def repo(hub: LocalHub, namespace: str) -> str:
    """Return a repository for this test."""
    name = f"acme/{namespace}"
    hub.repos[name] = Repo()
    return name


async def test_pods_wait_for_a_volume_that_a_real_job_fills_and_protect_it_until_they_are_gone(
    plane: ControlPlane, namespace: str, repo: str, store: SecretStore, hub: LocalHub
) -> None:
    token = "hf_" + uuid.uuid4().hex
    hub.repos[repo] = Repo(token=token)
    match = in_cluster(plane, "prod-eu")
    await store.put(StoredSecret(namespace, "hub", {"HF_TOKEN": b""}))
    await plane.apply(
        a_cache("qwen", namespace, repo, match=match, authSecret={"name": "hub"})
    )
    await plane.apply(a_deployment("chat", namespace, modelCacheRef={"name": "qwen"}))
    held = await plane.until(
        "ModelCache",
        "qwen",
        lambda seen: reason(seen, "ArtifactReady") == "AuthSecretMissing",
        namespace,
    )
    assert f"key 'HF_TOKEN' of Secret {namespace}/hub is empty" in message(
        held, "ArtifactReady"
    )
    assert ("Warning", "AuthSecretMissing") in {
        (event["type"], event["reason"]) for event in held["status"]["events"]
    }
    assert [
        kind.partition("/")[0] for kind in objects(plane, "prod-eu", namespace)
    ] == ["persistentvolumeclaims"]

    deployment = await plane.until(
        "ModelDeployment",
        "chat",
        lambda seen: len(seen.get("status", {}).get("placements", ())) == 1,
        namespace,
    )
    (placement,) = deployment["status"]["placements"]
    assert placement["cluster"] == "prod-eu"
    hydrating = f"ModelCache {namespace}/qwen is Hydrating on prod-eu"
    replica = await plane.until(
        "ModelReplica",
        placement["replica"],
        lambda seen: hydrating in str(seen["status"]["conditions"]),
        namespace,
    )
    assert (
        reason(replica, "ModelAccepted"),
        hydrating in message(replica, "ModelAccepted"),
    ) == ("WaitingForCache", True)
    assert engines(plane, "prod-eu", namespace) == []
    templates = plane.get(
        "prod-eu",
        f"/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaimtemplates",
    )["items"]
    assert len(templates) == 1

    await store.put(StoredSecret(namespace, "hub", {"HF_TOKEN": token.encode()}))
    seen = await plane.ready("ModelCache", "qwen", namespace)
    claim = clusters_of(seen)["prod-eu"]["claimName"]
    await plane.ready("ModelDeployment", "chat", namespace)
    (engine,) = engines(plane, "prod-eu", namespace)
    assert mounted(engine) == [claim]
    running = await plane.describe("ModelReplica", placement["replica"], namespace)
    assert running["status"]["cache"] == {
        "claimName": claim,
        "artefactKey": clusters_of(seen)["prod-eu"]["artefactKey"],
        "phase": "Ready",
    }
    await eventually(
        lambda: now(lambda: objects(plane, "prod-eu", namespace)),
        lambda found: found == [f"persistentvolumeclaims/{claim}"],
        what="token and Job gone",
    )
    for kind, name in (("ModelCache", "qwen"), ("ModelReplica", placement["replica"])):
        history = (
            await plane.handle(kind, name, namespace).fetch_history()
        ).to_json_dict()
        words = "".join(said(history))
        assert "hub" in words or kind == "ModelReplica"
        assert token not in json.dumps(history) + words
    assert token not in plane.worker.log()

    await plane.delete("ModelCache", "qwen", namespace)
    deleting = await plane.until(
        "ModelCache",
        "qwen",
        lambda seen: reason(seen, "Deleting") == "InUse",
        namespace,
    )
    assert placement["replica"] in message(deleting, "Deleting")
    await plane.apply(a_deployment("late", namespace, modelCacheRef={"name": "qwen"}))
    late = await plane.until(
        "ModelDeployment",
        "late",
        lambda seen: condition(seen, "ModelCacheResolved") == "False",
        namespace,
    )
    assert late["status"].get("placements", []) == []
    assert (
        condition(await plane.describe("ModelDeployment", "chat", namespace), "Ready")
        == "True"
    )
    assert [mounted(found) for found in engines(plane, "prod-eu", namespace)] == [
        [claim]
    ]
    for name in ("chat", "late"):
        await plane.delete("ModelDeployment", name, namespace)
        await plane.gone("ModelDeployment", name, namespace)
    await plane.gone("ModelCache", "qwen", namespace)
    assert (
        objects(plane, "prod-eu", namespace)
        == plane.our_objects("prod-eu", namespace)
        == []
    )


async def test_a_missing_repository_fails_the_job_at_once_and_a_user_can_retry_it(
    plane: ControlPlane, namespace: str, repo: str
) -> None:
    with no_room_for_jobs(plane, "prod-eu"):
        await plane.apply(
            a_cache("qwen", namespace, repo, match=in_cluster(plane, "prod-eu"))
        )
        blocked = await plane.until(
            "ModelCache",
            "qwen",
            lambda seen: "unschedulable" in message(seen, "ArtifactReady"),
            namespace,
        )
        assert clusters_of(blocked)["prod-eu"]["phase"] == "Hydrating"
        await end_download(plane, "prod-eu", namespace, 42, "acme/none does not exist")
        failed = await plane.until(
            "ModelCache",
            "qwen",
            lambda seen: reason(seen, "ArtifactReady") == "Failed",
            namespace,
        )
    row = clusters_of(failed)["prod-eu"]
    assert (row["phase"], row["attempts"]) == ("Failed", 1)
    assert (
        row["message"]
        == "exit code 42: acme/none does not exist (no further attempt until the spec or "
        "the credential changes)"
    )
    assert failed["status"]["phase"] == "Failed"
    await plane.handle("ModelCache", "qwen", namespace).signal(
        "retry_now", {"by": "test"}
    )
    retried = await plane.ready("ModelCache", "qwen", namespace)
    assert clusters_of(retried)["prod-eu"]["readyAt"]
    await clean_up(plane, "qwen", namespace)


async def test_a_corrected_pull_secret_reaches_a_waiting_job_within_a_minute(
    plane: ControlPlane, namespace: str, repo: str, store: SecretStore
) -> None:
    async def put(password: bytes) -> None:
        await store.put(
            StoredSecret(
                namespace,
                "mirror",
                {".dockerconfigjson": b'{"auths": {"r": "%s"}}' % password},
                type=DOCKER,
            )
        )

    document = a_cache("qwen", namespace, repo, match=in_cluster(plane, "prod-eu"))
    document["spec"]["hydration"] = {"imagePullSecrets": [{"name": "mirror"}]}
    await put(b"wrong")
    with no_room_for_jobs(plane, "prod-eu"):
        await plane.apply(document)
        seen = await plane.until(
            "ModelCache",
            "qwen",
            lambda seen: "unschedulable" in message(seen, "ArtifactReady"),
            namespace,
        )
        claim = clusters_of(seen)["prod-eu"]["claimName"]

        def copied() -> tuple[bytes, str]:
            secret = plane.get(
                "prod-eu", f"/api/v1/namespaces/{namespace}/secrets/{claim}-pull-0"
            )
            job = plane.get(
                "prod-eu", f"/apis/batch/v1/namespaces/{namespace}/jobs/{claim}-hyd"
            )
            return base64.b64decode(secret["data"][".dockerconfigjson"]), job[
                "metadata"
            ]["uid"]

        before, job = copied()
        assert b"wrong" in before
        await put(b"right")
        await eventually(
            lambda: now(copied),
            lambda found: b"right" in found[0] and found[1] == job,
            what="the corrected copy",
        )
    await plane.ready("ModelCache", "qwen", namespace)
    await clean_up(plane, "qwen", namespace)
