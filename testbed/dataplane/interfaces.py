"""The paths that clients and administrators of engines use, besides chat and completions.

A simulated engine answers each of them with the request that it received.
"""

from typing import NamedTuple


class EnginePath(NamedTuple):
    """One path. `kind` is the kind of body that clients send."""

    method: str
    path: str
    kind: str = "json"


GET = "none"
FORM = "form"
BINARY = "binary"
JSON = "json"

CLIENT_PATHS = (
    # OpenAI
    EnginePath("GET", "/v1/models/simulated", GET),
    EnginePath("POST", "/v1/embeddings"),
    EnginePath("POST", "/v1/responses"),
    EnginePath("GET", "/v1/responses/resp_1", GET),
    EnginePath("POST", "/v1/moderations"),
    EnginePath("POST", "/v1/audio/speech"),
    EnginePath("POST", "/v1/audio/transcriptions", FORM),
    EnginePath("POST", "/v1/audio/translations", FORM),
    EnginePath("POST", "/v1/images/generations"),
    EnginePath("POST", "/v1/images/edits", FORM),
    # Anthropic
    EnginePath("POST", "/v1/messages"),
    EnginePath("POST", "/v1/messages/count_tokens"),
    # Jina and Cohere, as vLLM, SGLang and Infinity serve them
    EnginePath("POST", "/rerank"),
    EnginePath("POST", "/v1/rerank"),
    EnginePath("POST", "/v2/rerank"),
    EnginePath("POST", "/score"),
    EnginePath("POST", "/v1/score"),
    EnginePath("POST", "/classify"),
    EnginePath("POST", "/pooling"),
    # vLLM and SGLang
    EnginePath("POST", "/tokenize"),
    EnginePath("POST", "/detokenize"),
    EnginePath("POST", "/generate"),
    EnginePath("GET", "/version", GET),
    # Text Embeddings Inference and Text Generation Inference
    EnginePath("POST", "/embed"),
    EnginePath("POST", "/embed_sparse"),
    EnginePath("POST", "/predict"),
    EnginePath("GET", "/info", GET),
    # llama.cpp and Ollama
    EnginePath("POST", "/completion"),
    EnginePath("POST", "/api/chat"),
    EnginePath("POST", "/api/generate"),
    # Triton and KServe
    EnginePath("GET", "/v2/health/ready", GET),
    EnginePath("GET", "/v2/models/simulated", GET),
    EnginePath("POST", "/v2/models/simulated/infer"),
    EnginePath("POST", "/v2/models/simulated/generate"),
    EnginePath("POST", "/v2/models/simulated/infer", BINARY),
    EnginePath("POST", "/v1/models/simulated:predict"),
)

ADMINISTRATION_PATHS = (
    EnginePath("POST", "/v1/load_lora_adapter"),
    EnginePath("POST", "/v1/unload_lora_adapter"),
    EnginePath("POST", "/sleep"),
    EnginePath("POST", "/wake_up"),
    EnginePath("POST", "/reset_prefix_cache"),
    EnginePath("POST", "/start_profile"),
    EnginePath("POST", "/stop_profile"),
    EnginePath("POST", "/flush_cache"),
    EnginePath("GET", "/flush_cache", GET),
    EnginePath("POST", "/update_weights_from_disk"),
    EnginePath("POST", "/load_lora_adapter"),
    EnginePath("POST", "/abort_request"),
    EnginePath("GET", "/metrics", GET),
    EnginePath("POST", "/v2/repository/models/simulated/unload"),
    EnginePath("POST", "/v2/repository/models/simulated/load"),
)
