"""The load of a simulated engine: running and waiting requests, and the KV cache.

An engine runs a limited number of requests, and others wait in order. `exposition`
writes the load as Prometheus text, with the names of the metrics of vLLM, SGLang or
`trtllm-serve`, which endpoint pickers read.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

VLLM, SGLANG, TRT_LLM = "vllm", "sglang", "trtllm-serve"
RUNNING_MAX = 256
KV_TOKENS = 100_000
KV_BLOCK_TOKENS = 16
ADAPTERS_MAX = 4


class EngineLoad:
    """The requests of one engine."""

    def __init__(self, running_max: int = RUNNING_MAX) -> None:
        self._slots = asyncio.Semaphore(running_max)
        self._running: Counter[str] = Counter()
        self._waiting: Counter[str] = Counter()
        self._tokens = 0

    @asynccontextmanager
    async def request(self, tokens: int, adapter: str = "") -> AsyncIterator[None]:
        """Wait for a slot, and keep it until the end of the block.

        `tokens` is the number of tokens in the KV cache, `adapter` a LoRA adapter.
        """
        self._waiting[adapter] += 1
        try:
            await self._slots.acquire()
        finally:
            self._waiting[adapter] -= 1
        self._running[adapter] += 1
        self._tokens += tokens
        try:
            yield
        finally:
            self._tokens -= tokens
            self._running[adapter] -= 1
            self._slots.release()

    @property
    def running(self) -> int:
        """The number of running requests."""
        return self._running.total()

    @property
    def waiting(self) -> int:
        """The number of waiting requests."""
        return self._waiting.total()

    def exposition(self, engine: str, model: str) -> str:
        """Return the metrics of an engine as Prometheus text."""
        usage = min(1.0, self._tokens / KV_TOKENS)
        blocks = KV_TOKENS // KV_BLOCK_TOKENS
        own = f'{{model_name="{model}"}}'
        if engine == SGLANG:
            gauges = {
                f"sglang:num_queue_reqs{own}": self.waiting,
                f"sglang:num_running_reqs{own}": self.running,
                f"sglang:token_usage{own}": usage,
                f'sglang:cache_config_info{{page_size="{KV_BLOCK_TOKENS}",'
                f'num_pages="{blocks}"}}': 1,
            }
        elif engine == TRT_LLM:
            gauges = {
                f"trtllm_num_requests_waiting{own}": self.waiting,
                f"trtllm_num_requests_running{own}": self.running,
                f"trtllm_kv_cache_utilization{own}": usage,
                f"trtllm_kv_cache_tokens_per_block{own}": KV_BLOCK_TOKENS,
                f"trtllm_kv_cache_max_blocks{own}": blocks,
            }
        else:
            adapters = (
                f'{{max_lora="{ADAPTERS_MAX}",'
                f'running_lora_adapters="{_names(self._running)}",'
                f'waiting_lora_adapters="{_names(self._waiting)}"}}'
            )
            gauges = {
                f"vllm:num_requests_waiting{own}": self.waiting,
                f"vllm:num_requests_running{own}": self.running,
                f"vllm:kv_cache_usage_perc{own}": usage,
                f'vllm:cache_config_info{{block_size="{KV_BLOCK_TOKENS}",'
                f'num_gpu_blocks="{blocks}"}}': 1,
                # vLLM sets this gauge to the present time.
                f"vllm:lora_requests_info{adapters}": 1,
            }
        lines = []
        for series, value in gauges.items():
            lines.append(f"# TYPE {series.partition('{')[0]} gauge\n{series} {value}\n")
        return "".join(lines)


def _names(requests: Counter[str]) -> str:
    return ",".join(sorted(name for name, count in requests.items() if name and count))
