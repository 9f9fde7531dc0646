"""LoRA adapters on a real API server: a replica needs the caches of its model and of its adapters, and each is kept while a pod mounts it.

spec/workloads.md 14, cases 60, 61 and 98.
"""

import pytest

from tests.environment.local_hub import LocalHub, Repo
from tests.workflows.environment.caches import clean_up, clusters_of, engines, in_cluster, mounted
from tests.workflows.environment.harness import ControlPlane, a_cache, a_deployment, message, reason

pytestmark = pytest.mark.testbed


async def test_wkl_61_wkl_98_a_replica_follows_the_caches_of_its_adapters(plane: ControlPlane, namespace: str, hub: LocalHub) -> None:
    here = in_cluster(plane, "prod-eu")
    for name in ("qwen", "lora"):
        hub.repos[f"acme/{namespace}-{name}"] = Repo()
    deployment = a_deployment("chat", namespace, modelCacheRef={"name": "qwen"})
    adapters = [{"name": "support", "modelCacheRef": {"name": "lora"}}]
    for engine in deployment["spec"]["template"]["spec"]["engines"]:
        engine["adapters"] = adapters
    await plane.apply(a_cache("qwen", namespace, f"acme/{namespace}-qwen"))
    await plane.ready("ModelCache", "qwen", namespace)
    await plane.apply(deployment)

    def missing(seen: dict[str, object]) -> bool:
        return "ModelCache lora not found" in str(seen.get("status"))

    await plane.until("ModelDeployment", "chat", missing, namespace)
    # It may be on any cluster, the model as well: the adapter decides.
    await plane.apply(a_cache("lora", namespace, f"acme/{namespace}-lora", match=here))
    ready = await plane.ready("ModelDeployment", "chat", namespace)
    (placement,) = ready["status"]["placements"]
    assert placement["cluster"] == "prod-eu"
    claims = [clusters_of(await plane.describe("ModelCache", name, namespace))["prod-eu"]["claimName"] for name in ("qwen", "lora")]
    (engine,) = engines(plane, "prod-eu", namespace)
    assert mounted(engine) == claims

    await plane.delete("ModelCache", "lora", namespace)
    used = await plane.until("ModelCache", "lora", lambda seen: reason(seen, "Deleting") == "InUse", namespace)
    assert placement["replica"] in message(used, "Deleting")
    await plane.delete("ModelDeployment", "chat", namespace)
    await plane.gone("ModelDeployment", "chat", namespace)
    await plane.gone("ModelCache", "lora", namespace)
    await clean_up(plane, "qwen", namespace)
