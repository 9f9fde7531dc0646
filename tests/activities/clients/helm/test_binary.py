"""The helm that a worker selects, and the errors for helms that it cannot use."""

import asyncio
from pathlib import Path

import pytest

from activities.clients.helm import binary
from activities.clients.helm.binary import Helm, HelmBinary
from api_types.errors import Unsupported
from testbed.programs.versions import HELM
from tests.activities.clients.helm.conftest import Script, ended, numbers_in


async def refusal(setting: str) -> str:
    with pytest.raises(Unsupported) as raised:
        await HelmBinary(setting).get()
    assert "stack.helm" in raised.value.message
    assert "modelplane.ai/stack: external" in raised.value.message
    return raised.value.message


@pytest.mark.testbed("shared")
async def test_the_pinned_helm_is_taken_with_its_version(helm_path: str) -> None:
    found = await HelmBinary(helm_path).get()
    assert (found.path, ".".join(map(str, found.version)), found.applies_on_server) == (
        helm_path,
        HELM,
        True,
    )


@pytest.mark.parametrize("major", [3, 4])
async def test_a_short_version_is_refused_with_the_linker_variable_that_was_not_set(
    script: Script, major: int
) -> None:
    message = await refusal(script(f"echo v{major}.22"))
    assert f"reports the short version v{major}.22" in message
    assert f'-ldflags "-X helm.sh/helm/v{major}/internal/version.version=' in message


async def test_a_program_that_is_missing_is_named(tmp_path: Path) -> None:
    assert (
        f"{tmp_path / 'none'} is not a program that this user may run"
        in await refusal(str(tmp_path / "none"))
    )


async def test_without_a_setting_the_helm_of_path_is_used(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, script: Script
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    assert "none is on PATH" in await refusal("")
    on_path = script("echo v4.3.2")
    monkeypatch.setenv("PATH", str(Path(on_path).parent))
    assert await HelmBinary().get() == Helm(on_path, (4, 3, 2))


async def test_a_helm_that_is_too_old_is_refused_on_path_and_in_the_setting(
    monkeypatch: pytest.MonkeyPatch, script: Script
) -> None:
    old = script("echo v2.17.0")
    assert "is helm v2.17.0" in await refusal(old)
    monkeypatch.setenv("PATH", str(Path(old).parent))
    assert "is helm v2.17.0" in await refusal("")


async def test_helm_3_applies_no_objects_on_the_server(script: Script) -> None:
    found = await HelmBinary(script("echo v3.22.0")).get()
    assert not found.applies_on_server


async def test_a_file_that_may_not_be_run_is_refused(script: Script) -> None:
    assert "is not a program that this user may run" in await refusal(
        script("echo v4.3.1", mode=0o644)
    )


async def test_a_file_that_is_not_executable_is_rejected(tmp_path: Path) -> None:
    text = tmp_path / "helm"
    text.write_bytes(b"\x00\x01 no program")
    text.chmod(0o755)
    assert f"{text} cannot be run: Exec format error" in await refusal(str(text))


@pytest.mark.parametrize("version", ["v2.17.0", "v3.21.9", "v5.0.0"])
async def test_a_version_that_is_not_tested_is_refused(
    script: Script, version: str
) -> None:
    assert (
        f"is helm {version}, and a version from 3.22 to 4 is needed"
        in await refusal(script(f"echo {version}"))
    )


@pytest.mark.parametrize(
    "version", ["v3.22.0", "4.3.1", "v4.3.1+g1234567", "v4.4.0-rc.1"]
)
async def test_full_versions_are_read(script: Script, version: str) -> None:
    assert (await HelmBinary(script(f"echo {version}")).get()).version >= (3, 22, 0)


@pytest.mark.parametrize("output", ["hello", "", "v4.3.1 v4.3.1", "v4.3.1; rm"])
async def test_other_output_is_not_taken_for_a_version(
    script: Script, output: str
) -> None:
    assert f"does not report a version of Helm: {output!r}" in await refusal(
        script(f"echo '{output}'")
    )


async def test_a_program_that_writes_without_end_is_not_listened_to(
    script: Script,
) -> None:
    message = await refusal(script("exec yes helm"))
    assert "does not report a version of Helm" in message
    assert len(message) < 1000


@pytest.mark.slow
async def test_a_hanging_program_is_ended_with_its_children(
    monkeypatch: pytest.MonkeyPatch, script: Script, tmp_path: Path
) -> None:
    monkeypatch.setattr(binary, "_VERSION_SECONDS", 2)
    message = await refusal(script(f"sleep 3600 & echo $! > {tmp_path}/child; wait"))
    assert "did not report its version within" in message
    await ended(int((tmp_path / "child").read_text()))


async def test_a_check_that_is_cancelled_leaves_no_process(
    script: Script, tmp_path: Path
) -> None:
    looking = asyncio.create_task(
        HelmBinary(script(f"echo $$ > {tmp_path}/pid; exec sleep 60")).get()
    )
    (pid,) = await numbers_in(tmp_path / "pid")
    looking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await looking
    await ended(pid)


async def test_a_helm_installed_later_is_found_and_its_version_is_read_once(
    script: Script, tmp_path: Path
) -> None:
    path = tmp_path / "bin" / "helm"
    looked = HelmBinary(str(path))
    with pytest.raises(Unsupported):
        await looked.get()
    script(f"echo >> {tmp_path}/asked; echo v4.3.1")
    assert (
        len(
            {
                id(found)
                for found in await asyncio.gather(*(looked.get() for _ in range(5)))
            }
        )
        == 1
    )
    assert (tmp_path / "asked").read_text() == "\n"
