"""The choice of pods by their load, as engines of several kinds publish it."""

import asyncio
from collections import Counter

import httpx
import pytest

from testbed.dataplane.engine import POD_HEADER
from tests.testbed.request_path.request_path import (
    CHAT,
    RequestPath,
    chat,
    client,
)

pytestmark = [pytest.mark.testbed, pytest.mark.soak]

# A system prompt that all requests share, of many blocks of the prefix cache.
PROMPT = "You are a helpful assistant. " * 200
RUNNING_MAX = 8
# The picker reads metrics every 50 ms.
PAUSE_SECONDS = 0.3
ENGINES = {
    "vllm": ["--max-num-seqs=8"],
    "sglang": ["--max-running-requests=8", "--enable-metrics"],
    "trtllm-serve": ["--max_batch_size=8"],
}


@pytest.mark.parametrize("engine", ENGINES)
async def test_load_outweighs_a_shared_prompt(path: RequestPath, engine: str) -> None:
    """Requests with one prompt prefer the pod that has it, until its queue grows."""
    settings = {}
    if engine == "trtllm-serve":
        # It has JSON at the path that pickers read by default.
        flag = {"model-server-metrics-path": "/prometheus/metrics"}
        settings = {"epp_extra_flags": flag}
    labels = {"inference.networking.k8s.io/engine-type": engine}
    body = chat(PROMPT, max_tokens=20, seconds_per_token=0.5)
    with path.model(
        f"balance-{engine}", args=ENGINES[engine], labels=labels, settings=settings
    ) as model:
        async with client() as http:
            asked = []
            for _ in range(RUNNING_MAX * 4):
                request = http.post(f"{model.url}{CHAT}", json=body)
                asked.append(asyncio.create_task(request))
                await asyncio.sleep(PAUSE_SECONDS)
            answers = await asyncio.gather(*asked)
    assert {each.status_code for each in answers} == {httpx.codes.OK}, [
        each.text for each in answers if each.is_error
    ]
    found = Counter(each.headers[POD_HEADER] for each in answers)
    assert len(found) == 2, found
    assert min(found.values()) >= RUNNING_MAX, found
