"""Which helm a worker takes, and what it says about one that it cannot take."""

import asyncio
from pathlib import Path

import pytest

from activities.clients.helm import binary
from activities.clients.helm.binary import Helm, HelmBinary
from api_types.errors import Unsupported
from testbed.programs.versions import HELM
from tests.activities.clients.helm.conftest import Script, ended, numbers_in


async def refusal(setting: str, *places: Path) -> str:
    with pytest.raises(Unsupported) as raised:
        await HelmBinary(setting, places).get()
    assert "stack.helm" in raised.value.message
    assert "modelplane.ai/stack: external" in raised.value.message
    return raised.value.message


@pytest.mark.testbed("shared")
async def test_the_pinned_helm_is_taken_with_its_version(helm_path: str) -> None:
    found = await HelmBinary(helm_path).get()
    assert (found.path, ".".join(map(str, found.version)), found.applies_on_server) == (helm_path, HELM, True)


@pytest.mark.parametrize("major", [3, 4])
async def test_stk_2_a_short_version_is_refused_with_the_linker_variable_that_was_not_set(script: Script, major: int) -> None:
    message = await refusal(script(f"echo v{major}.22"))
    assert f"reports the short version v{major}.22" in message
    assert f'-ldflags "-X helm.sh/helm/v{major}/internal/version.version=' in message


async def test_stk_3_a_program_that_is_missing_is_named(tmp_path: Path) -> None:
    assert f"{tmp_path / 'none'} is not a program that this user may run" in await refusal(str(tmp_path / "none"))


async def test_stk_3_without_a_setting_path_and_the_known_places_are_searched(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, script: Script
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    assert "none is on PATH" in await refusal("", tmp_path / "nowhere")
    there = script("echo v4.3.1", name="helm-4")
    assert (await HelmBinary("", [tmp_path / "nowhere", Path(there)]).get()).path == there
    on_path = script("echo v4.3.2")
    monkeypatch.setenv("PATH", str(Path(on_path).parent))
    assert await HelmBinary("", [Path(there)]).get() == Helm(on_path, (4, 3, 2))


async def test_one_on_path_that_cannot_be_used_is_passed_over_and_a_setting_is_not(monkeypatch: pytest.MonkeyPatch, script: Script) -> None:
    old, new = script("echo v2.17.0"), script("echo v3.22.0", name="helm-3")
    monkeypatch.setenv("PATH", str(Path(old).parent))
    found = await HelmBinary("", [Path(new)]).get()
    assert (found.path, found.applies_on_server) == (new, False)
    assert "is helm v2.17.0" in await refusal(old, Path(new))


async def test_a_file_that_may_not_be_run_is_refused(script: Script) -> None:
    assert "is not a program that this user may run" in await refusal(script("echo v4.3.1", mode=0o644))


async def test_a_file_that_is_no_program_is_refused(tmp_path: Path) -> None:
    text = tmp_path / "helm"
    text.write_bytes(b"\x00\x01 no program")
    text.chmod(0o755)
    assert f"{text} cannot be run: Exec format error" in await refusal(str(text))


@pytest.mark.parametrize("version", ["v2.17.0", "v3.21.9", "v5.0.0"])
async def test_a_version_that_is_not_tested_is_refused(script: Script, version: str) -> None:
    assert f"is helm {version}, and a version from 3.22 to 4 is needed" in await refusal(script(f"echo {version}"))


@pytest.mark.parametrize("version", ["v3.22.0", "4.3.1", "v4.3.1+g1234567", "v4.4.0-rc.1"])
async def test_full_versions_are_read(script: Script, version: str) -> None:
    assert (await HelmBinary(script(f"echo {version}")).get()).version >= (3, 22, 0)


@pytest.mark.parametrize("output", ["hello", "", "v4.3.1 v4.3.1", "v4.3.1; rm"])
async def test_other_output_is_no_version(script: Script, output: str) -> None:
    assert f"does not say a version of Helm: {output!r}" in await refusal(script(f"echo '{output}'"))


async def test_a_program_that_writes_without_end_is_not_listened_to(script: Script) -> None:
    message = await refusal(script("exec yes helm"))
    assert "does not say a version of Helm" in message
    assert len(message) < 1000


@pytest.mark.slow
async def test_a_program_that_hangs_is_ended_with_what_it_started(monkeypatch: pytest.MonkeyPatch, script: Script, tmp_path: Path) -> None:
    monkeypatch.setattr(binary, "_VERSION_SECONDS", 2)
    message = await refusal(script(f"sleep 3600 & echo $! > {tmp_path}/child; wait"))
    assert "did not say its version within" in message
    await ended(int((tmp_path / "child").read_text()))


async def test_a_check_that_is_cancelled_leaves_no_process(script: Script, tmp_path: Path) -> None:
    looking = asyncio.create_task(HelmBinary(script(f"echo $$ > {tmp_path}/pid; exec sleep 60")).get())
    (pid,) = await numbers_in(tmp_path / "pid")
    looking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await looking
    await ended(pid)


async def test_one_that_is_put_there_later_is_found_and_a_found_one_is_not_asked_again(script: Script, tmp_path: Path) -> None:
    path = tmp_path / "bin" / "helm"
    looked = HelmBinary(str(path))
    with pytest.raises(Unsupported):
        await looked.get()
    script(f"echo >> {tmp_path}/asked; echo v4.3.1")
    assert len({id(found) for found in await asyncio.gather(*(looked.get() for _ in range(5)))}) == 1
    assert (tmp_path / "asked").read_text() == "\n"
