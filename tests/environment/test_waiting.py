"""Tests wait by a clock that ignores stolen processor time."""

from pathlib import Path

import pytest

from tests.environment import waiting


def test_stolen_time_and_a_stop_of_the_machine_use_up_no_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "_STAT", tmp_path / "stat")
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    monkeypatch.setattr("os.sysconf", lambda _: 100)

    def counted(*ticks: int) -> float:
        (tmp_path / "stat").write_text(
            f"cpu  {' '.join(map(str, ticks))} 0 0\ncpu0 1 1\n"
        )
        return waiting.machine_seconds()

    before = counted(100, 0, 50, 300, 10, 0, 40, 0)
    assert counted(100, 0, 50, 300, 10, 0, 40, 0) == before, (
        "nothing was counted, however long that took"
    )
    assert counted(100, 0, 50, 300, 10, 0, 40, 9000) == before, "stolen"
    assert counted(200, 0, 50, 400, 10, 0, 40, 9000) - before == 1, (
        "200 ticks of two processors"
    )
