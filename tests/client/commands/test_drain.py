"""`modelplane drain`, `uncordon` and `retry`: what they refuse."""

import pytest

from tests.client.conftest import Cli

BAD_USAGE = [
    ("api-G11 a drain of a deployment", ["drain", "md/qwen"], 2, "is no InferenceCluster"),
    ("api-G11 a drain of nothing", ["drain"], 2, "Missing argument"),
    ("api-G11 uncordon of a kind", ["uncordon", "ic/"], 2, "does not name an object"),
    ("api-G11 a retry of a whole kind", ["retry", "md"], 2, "which ModelDeployment?"),
    ("api-G11 a drain without Temporal", ["drain", "oslo"], 6, "does not answer"),
    ("api-G11 an uncordon without Temporal", ["uncordon", "ic/oslo"], 6, "does not answer"),
    ("api-G11 a retry without Temporal", ["retry", "md/qwen"], 6, "does not answer"),
]


@pytest.mark.usefixtures("nowhere")
@pytest.mark.parametrize(("words", "code", "say"), [row[1:] for row in BAD_USAGE], ids=[row[0] for row in BAD_USAGE])
def test_what_cannot_be_done_is_reported(cli: Cli, words: list[str], code: int, say: str) -> None:
    result = cli(*words)
    assert (result.code, result.out) == (code, "")
    assert say in " ".join(result.err.split())
