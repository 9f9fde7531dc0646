"""The answers of a simulated pod's engine. No pod is needed."""

import asyncio
import hashlib
import json
from typing import Any

import httpx
import pytest

from testbed.dataplane.engine import (
    BODY_BYTES_MAX,
    PACE_VARIABLE,
    TOKENS_MAX,
    application,
)
from testbed.dataplane.load import KV_TOKENS, EngineLoad
from testbed.dataplane.pods import engine_of, served_model

POD = "10.244.8.3"
CHAT, TEXT = "/v1/chat/completions", "/v1/completions"


def send(method: str, path: str, **request: Any) -> httpx.Response:
    """Send one request to an engine and read the whole answer."""

    async def ask() -> httpx.Response:
        transport = httpx.ASGITransport(application("acme/large"))
        async with httpx.AsyncClient(
            transport=transport, base_url=f"http://{POD}:8000"
        ) as client:
            return await client.request(method, path, **request)

    return asyncio.run(ask())


def events(answer: httpx.Response) -> list[Any]:
    """Return the documents of a stream that ends normally."""
    assert answer.headers["content-type"].startswith("text/event-stream")
    *lines, last = [
        line.removeprefix("data: ") for line in answer.text.split("\n\n") if line
    ]
    assert last == "[DONE]"
    return [json.loads(line) for line in lines]


@pytest.mark.parametrize(
    ("path", "kind", "ask"),
    [
        (
            CHAT,
            "chat.completion",
            {"messages": [{"role": "user", "content": "Hi you"}]},
        ),
        (TEXT, "text_completion", {"prompt": "Hi you"}),
    ],
)
def test_an_answer_names_its_pod_and_model(
    path: str, kind: str, ask: dict[str, Any]
) -> None:
    answer = send("POST", path, json={"model": "qwen", **ask})
    document = answer.json()
    choice = document["choices"][0]
    text = choice["message"]["content"] if path == CHAT else choice["text"]
    assert (document["object"], document["model"], choice["finish_reason"]) == (
        kind,
        "qwen",
        "stop",
    )
    assert text == f"pod {POD} was asked at {path}"
    assert document["usage"] == {
        "prompt_tokens": 2,
        "completion_tokens": 6,
        "total_tokens": 8,
    }
    assert answer.headers["x-pod-ip"] == POD


@pytest.mark.parametrize(
    ("path", "kind"), [(CHAT, "chat.completion.chunk"), (TEXT, "text_completion")]
)
def test_a_stream_has_one_event_for_each_token(path: str, kind: str) -> None:
    answer = send(
        "POST",
        path,
        json={
            "stream": True,
            "max_tokens": 9,
            "stream_options": {"include_usage": True},
        },
    )
    *chunks, last = events(answer)
    assert [chunk["choices"][0]["finish_reason"] for chunk in chunks] == [None] * 8 + [
        "length"
    ]
    assert {(chunk["object"], chunk["model"]) for chunk in chunks} == {
        (kind, "acme/large")
    }
    assert (last["choices"], last["usage"]["completion_tokens"]) == ([], 9)
    if path == CHAT:
        assert [chunk["choices"][0]["delta"].get("role") for chunk in chunks] == [
            "assistant"
        ] + [None] * 8


@pytest.mark.parametrize(
    ("field", "variable"), [(0.03, None), (None, "0.03"), (0.03, "9")]
)
def test_a_token_takes_its_time(
    field: float | None, variable: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    slept = []
    sleep = asyncio.sleep

    async def noted(seconds: float) -> None:
        slept.append(seconds)
        await sleep(0)

    monkeypatch.setattr("testbed.dataplane.engine.asyncio.sleep", noted)
    if variable:
        monkeypatch.setenv(PACE_VARIABLE, variable)
    ask = {"max_tokens": 4, **({} if field is None else {"seconds_per_token": field})}
    assert len(events(send("POST", CHAT, json=ask | {"stream": True}))) == 4
    assert [seconds for seconds in slept if seconds] == [0.03] * 4
    send("POST", CHAT, json=ask)
    assert slept[-1] == pytest.approx(0.12)


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("GET", "/", None, 404),
        ("GET", "/ml-team/qwen/v1/models", None, 404),
        ("POST", "/v1/nothing", "{}", 404),
        ("GET", CHAT, None, 405),
        ("POST", CHAT, "", 400),
        ("POST", CHAT, "{", 400),
        ("POST", CHAT, "[]", 400),
        ("POST", CHAT, '{"max_tokens": 0}', 400),
        ("POST", CHAT, json.dumps({"max_tokens": TOKENS_MAX + 1}), 400),
        ("POST", TEXT, '{"seconds_per_token": "slow"}', 400),
        ("POST", TEXT, "x" * (BODY_BYTES_MAX + 1), 413),
    ],
    ids=lambda value: str(value)[:24],
)
def test_an_error_has_the_format_of_the_real_api_and_names_the_pod(
    method: str, path: str, body: str | None, status: int
) -> None:
    answer = send(method, path, content=body)
    assert answer.status_code == status
    assert answer.json()["error"]["code"] == status
    assert POD in answer.json()["error"]["message"]
    assert answer.headers["x-pod-ip"] == POD


def test_the_received_request_is_echoed() -> None:
    arrived = {
        "pod": POD,
        "path": "/v1/echo",
        "query": "a=1",
        "host": f"{POD}:8000",
        "scheme": "http",
    }
    assert send("GET", "/v1/echo?a=1").json() == arrived
    assert send("GET", "/health").json() == {"pod": POD}


@pytest.mark.parametrize(
    ("containers", "want"),
    [
        ([{"args": ["--model=Qwen/Qwen3-8B", "--served-model-name=demo"]}], "demo"),
        (
            [{"command": ["vllm", "serve"], "args": ["--model", "Qwen/Qwen3-8B"]}],
            "Qwen/Qwen3-8B",
        ),
        ([{}, {"args": ["--model-path", "/models/llama"]}], "/models/llama"),
        ([{"args": ["--served-model-name"]}], "simulated"),
    ],
)
def test_an_engine_lists_the_model_that_its_pod_names(
    containers: list[dict[str, Any]], want: str
) -> None:
    assert served_model({"spec": {"containers": containers}}) == want
    assert [model["id"] for model in send("GET", "/v1/models").json()["data"]] == [
        "acme/large"
    ]


METRICS = {
    "vllm": (
        "/metrics",
        {
            'vllm:num_requests_waiting{model_name="acme/large"}': 1,
            'vllm:num_requests_running{model_name="acme/large"}': 2,
            'vllm:kv_cache_usage_perc{model_name="acme/large"}': 0.5,
            'vllm:cache_config_info{block_size="16",num_gpu_blocks="6250"}': 1,
            'vllm:lora_requests_info{max_lora="4",running_lora_adapters="tuned",'
            'waiting_lora_adapters="other"}': 1,
        },
    ),
    "sglang": (
        "/metrics",
        {
            'sglang:num_queue_reqs{model_name="acme/large"}': 1,
            'sglang:num_running_reqs{model_name="acme/large"}': 2,
            'sglang:token_usage{model_name="acme/large"}': 0.5,
            'sglang:cache_config_info{page_size="16",num_pages="6250"}': 1,
        },
    ),
    "trtllm-serve": (
        "/prometheus/metrics",
        {
            'trtllm_num_requests_waiting{model_name="acme/large"}': 1,
            'trtllm_num_requests_running{model_name="acme/large"}': 2,
            'trtllm_kv_cache_utilization{model_name="acme/large"}': 0.5,
            'trtllm_kv_cache_tokens_per_block{model_name="acme/large"}': 16,
            'trtllm_kv_cache_max_blocks{model_name="acme/large"}': 6250,
        },
    ),
}


@pytest.mark.parametrize("engine", METRICS)
async def test_the_metrics_of_each_engine_follow_its_load(engine: str) -> None:
    """Two of three requests run. The third one waits for a slot."""
    path, expected = METRICS[engine]
    load = EngineLoad(running_max=2)
    ended = asyncio.Event()

    async def hold(adapter: str) -> None:
        async with load.request(KV_TOKENS // 4, adapter):
            await ended.wait()

    held = [asyncio.create_task(hold(name)) for name in ("", "tuned", "other")]
    await asyncio.sleep(0)
    transport = httpx.ASGITransport(application("acme/large", engine, load))
    async with httpx.AsyncClient(
        transport=transport, base_url=f"http://{POD}:8000"
    ) as client:
        text = (await client.get(path)).text
    series = [line for line in text.splitlines() if not line.startswith("#")]
    found = {
        name: float(value) for name, _, value in (s.rpartition(" ") for s in series)
    }
    assert found == expected
    ended.set()
    await asyncio.gather(*held)
    assert (load.running, load.waiting) == (0, 0)


def test_a_request_of_a_client_is_returned_with_its_headers() -> None:
    body = b"\0\1" * 100
    answer = send("POST", "/v2/models/simulated/infer", content=body)
    assert answer.json() == {
        "pod": POD,
        "method": "POST",
        "path": "/v2/models/simulated/infer",
        "type": "",
        "bytes": len(body),
        "sha256": hashlib.sha256(body).hexdigest(),
    }
    assert "content-length" in answer.headers["x-received-headers"].split(",")


@pytest.mark.parametrize(
    ("labels", "engine"),
    [
        ({}, "vllm"),
        ({"llm-d.ai/engine-type": "sglang"}, "sglang"),
        ({"inference.networking.k8s.io/engine-type": "trtllm-serve"}, "trtllm-serve"),
    ],
)
def test_the_label_of_a_pod_names_its_engine(
    labels: dict[str, str], engine: str
) -> None:
    assert engine_of({"metadata": {"labels": labels}}) == engine
