"""Headers that steer requests, and paths that administer engines."""

import re

import pytest

from activities.render.objects.edge import (
    SESSION_HEADER,
    STEERING_HEADERS,
    admin_patterns,
    header_filters,
)

PREFIX = "/ml.team/qwen3-8b"
BLOCKED = [
    "/v1/load_lora_adapter",
    "/v1/unload_lora_adapter",
    "/metrics",
    "/sleep",
    "/wake_up",
    "/collective_rpc",
    "/start_profile",
    "/reset_prefix_cache",
    "/flush_cache",
    "/update_weights_from_disk",
    "/update_weights",
    "/load_lora_adapter_from_tensors",
    "/get_server_info",
    "/release_memory_occupation",
    "/set_internal_state",
    "/hicache/storage-backend/clear",
    "/prometheus/metricsx",
    "/v1/metrics",
    "/v2/repository/models/qwen/unload",
    "/v2/models/qwen/trace/setting",
    "/v2/models/qwen/versions/1/trace/setting",
    "/v2/systemsharedmemory/region/x/register",
    "/api/pull",
    "/api/delete",
    "/slots/0",
    "/models/unload",
    # Variants that servers read as the same path.
    "/v1/load_lora_adapter/",
    "//v1//load_lora_adapter",
    "/v1%2Fload_lora_adapter",
    "%2fv1/load_lora_adapter",
    "/v1/load%5Flora_adapter",
    "/%6Detrics",
    "/x/%2e%2E/metrics",
]
REACHED = [
    "/v1/chat/completions",
    "/v1/completions",
    "/v1/responses/resp_1",
    "/v1/messages",
    "/v1/embeddings",
    "/v1/rerank",
    "/v1/score",
    "/v1/audio/transcriptions",
    "/v1/images/generations",
    "/v1/models",
    "/v1/models/metrics",
    "/v1/models/acme%2Fqwen",
    "/v1/models/a%20b",
    "/v2/models/qwen/infer",
    "/v2/models/qwen/generate_stream",
    "/v2/health/ready",
    "/api/chat",
    "/api/tags",
    "/generate",
    "/embed",
    "/tokenize",
    "/health",
    "/metricsx",
    "/",
]


def blocked(path: str) -> bool:
    return any(re.search(pattern, path) for pattern in admin_patterns(PREFIX))


@pytest.mark.parametrize("path", BLOCKED)
def test_callers_do_not_reach_paths_that_administer_an_engine(path: str) -> None:
    assert blocked(f"{PREFIX}{path}")


@pytest.mark.parametrize("path", REACHED)
def test_callers_reach_all_other_paths(path: str) -> None:
    assert not blocked(f"{PREFIX}{path}")


@pytest.mark.parametrize(
    "prefix", ["/other/qwen3-8b", "/mlxteam/qwen3-8b", f"/x{PREFIX}", f"{PREFIX}-2"]
)
def test_the_patterns_of_one_route_do_not_match_paths_of_another(prefix: str) -> None:
    assert not blocked(f"{prefix}/metrics")


def test_patterns_fit_into_an_http_route_with_the_longest_names() -> None:
    longest = f"/{'n' * 63}/{'.'.join(['s' * 31, 's' * 31])}"
    assert max(map(len, admin_patterns(longest))) <= 1024


def test_two_filters_remove_every_steering_header() -> None:
    filters = [each["requestHeaderModifier"]["remove"] for each in header_filters()]
    assert [len(names) <= 16 for names in filters] == [True, True]
    assert tuple(filters[0] + filters[1]) == STEERING_HEADERS
    assert len(set(STEERING_HEADERS)) == len(STEERING_HEADERS)
    assert SESSION_HEADER not in STEERING_HEADERS
