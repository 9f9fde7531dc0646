"""The hash of the pods' source on a workload is equal in all releases.

A release with another hash for an equal spec would treat all pods of the fleet as pods
of another spec, and replace them at once.
"""

import json
from typing import Any

import pytest

from activities.render.inputs.facts import ClusterInput, ReplicaInput
from activities.render.inputs.settings import RenderSettings
from activities.render.replica import render_replica
from api_types import labels
from api_types.pins import apiversions

# Literal text instead of builders: the test compares the text that users wrote.
STANDALONE = """
{"clusterName": "eu-1", "engines": [{"name": "main", "copies": 3, "members": [
  {"role": "Standalone", "nodePoolName": "h200",
   "deviceRequests": [{"name": "gpu", "deviceClassName": "gpu.nvidia.com", "count": 8}],
   "template": {"spec": {"containers": [{"name": "engine", "image": "acme/vllm:1",
   "args": ["--port=8000"]}]}}}]}]}
"""
GANG = """
{"clusterName": "eu-1", "modelCacheRef": {"name": "weights"}, "disruption": {"minAvailable": 1},
"engines": [{"name": "main", "copies": 2,
  "drain": {"preStopSeconds": 20, "graceSeconds": 60},
  "topology": {"domain": {"nodeLabel": "example.com/rack"}},
  "adapters": [{"name": "sql", "modelCacheRef": {"name": "lora"}, "modelNames": ["acme-sql"]}],
  "members": [
  {"role": "Leader", "nodePoolName": "h200", "deviceRequests": [{"name": "gpu",
  "deviceClassName": "gpu.nvidia.com", "count": 8}],
   "probes": {"startupSeconds": 900}, "template": {"spec": {"containers": [{"name": "engine",
   "image": "acme/vllm:1"}]}}},
  {"role": "Worker", "nodePoolName": "h200", "deviceRequests": [{"name": "gpu",
  "deviceClassName": "gpu.nvidia.com", "count": 8}],
   "worker": {"nodes": 3}, "template": {"spec": {"containers": [{"name": "engine",
   "image": "acme/vllm:1"}]}}}]}]}
"""
PREFILL_DECODE = """
{"clusterName": "eu-1", "serving": {"mode": "PrefillDecode"}, "engines": [
  {"name": "p", "copies": 1, "phase": "Prefill", "members": [
   {"role": "Standalone", "nodePoolName": "h200", "deviceRequests": [{"name": "gpu",
   "deviceClassName": "gpu.nvidia.com", "count": 1}],
    "template": {"spec": {"containers": [{"name": "engine", "image": "acme/vllm:1",
    "args": ["--port=8000"]}]}}}]},
  {"name": "d", "copies": 1, "phase": "Decode", "members": [
   {"role": "Standalone", "nodePoolName": "h200", "deviceRequests": [{"name": "gpu",
   "deviceClassName": "gpu.nvidia.com", "count": 1}],
    "template": {"spec": {"containers": [{"name": "engine", "image": "acme/vllm:1",
    "args": ["--port=8200"]}]}}}]}]}
"""
HASHES = [
    pytest.param(
        STANDALONE,
        {"model-serving-main": "60a4fd277c03fe86", "epp": "22df25c3984b1d0a"},
        id="standalone",
    ),
    pytest.param(
        GANG,
        {"model-serving-main": "014ffc15d9663734", "epp": "1be3812ede267cd6"},
        id="gang",
    ),
    pytest.param(
        PREFILL_DECODE,
        {
            "model-serving-p": "28766be43966083a",
            "model-serving-d": "69e4e4fbad02c0b8",
            "epp": "c377508e3cc4a9c9",
        },
        id="prefill-decode",
    ),
]


def sources(spec: dict[str, Any]) -> dict[str, str]:
    """Render a spec, and return the source hashes of its workloads by inventory key."""
    replica = ReplicaInput(
        "ml-team",
        "qwen-1a2b3",
        "uid-1",
        1,
        "qwen",
        "eu-1",
        0,
        spec,
        cache_claim="a",
        adapter_claims={"lora": "b"},
    )
    rendered = render_replica(
        replica,
        ClusterInput.assumed("eu-1", apis=sorted(apiversions.RENDERED)),
        RenderSettings(),
    )
    found = {
        item.key: item.manifest["metadata"]["annotations"].get(labels.PODS_SOURCE)
        for item in rendered.objects
    }
    return {key: value for key, value in found.items() if value}


@pytest.mark.parametrize(("spec", "hashes"), HASHES)
def test_an_equal_spec_has_the_hash_of_every_release(
    spec: str, hashes: dict[str, str]
) -> None:
    assert sources(json.loads(spec)) == hashes


def test_fields_that_replace_no_pod_are_not_part_of_the_hash() -> None:
    spec = json.loads(GANG)
    spec["disruption"], spec["engines"][0]["copies"] = {"minAvailable": 2}, 7
    spec["engines"][0]["adapters"][0]["modelNames"] = ["acme-sql-2"]
    assert sources(spec) == sources(json.loads(GANG))
    spec["engines"][0]["adapters"][0]["name"] = "other"
    assert sources(spec) != sources(json.loads(GANG))
