"""Every benchmark prints its options without running."""

import runpy
import sys

import pytest


# Other tests of benchmarks may have loaded some of the modules already.
@pytest.mark.filterwarnings("ignore:.*found in sys.modules:RuntimeWarning")
@pytest.mark.parametrize(
    "module",
    [
        "",
        ".broadcast",
        ".decide",
        ".external_signals",
        ".front_load",
        ".lost_scheduler",
        ".policies",
        ".steady_state",
        ".storm",
        ".targets",
        ".temporal_burst",
        ".traffic",
    ],
)
def test_help_only_prints_the_options(
    module: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["bench", "--help"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_module(f"tests.bench{module or '.__main__'}", run_name="__main__")
    assert (ended.value.code, capsys.readouterr().out[:6]) == (0, "usage:")
