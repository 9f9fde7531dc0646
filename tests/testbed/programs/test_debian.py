"""A program of a Debian package is found, or unpacked with its libraries, and never
incomplete.
"""

from pathlib import Path

import pytest

from testbed.programs.install import Installer, InstallFailed

APT = """#!/bin/sh
echo "$@" >> {log}
case "$*" in
  *simulate*) [ -e {lists} ] || exit 100
    echo "Inst libwidget1 (1 Debian [amd64])"
    echo "Inst chromium-headless-shell (1 Debian [amd64])"
    echo "Conf libwidget1 (1)";;
  *update*) touch {lists};;
  *download*) touch libwidget1.deb chromium-headless-shell.deb;;
esac
"""
# Stands for an archive with the program, or with a library of it.
DPKG = """#!/bin/sh
case "$2" in
  *chromium*) mkdir -p "$3/usr/lib/chromium"; cd "$3/usr/lib/chromium"
    program=chromium-headless-shell
    printf '#!/bin/sh\\n[ -e "$LD_LIBRARY_PATH/libwidget.so.1" ] || exit 1\\n' > $program
    printf 'echo "Chromium 1 $*"\\n' >> $program
    chmod +x $program;;
  *) [ -e {broken} ] || {{
      mkdir -p "$3/usr/lib/some where"
      touch "$3/usr/lib/some where/libwidget.so.1"
    }};;
esac
"""


class Machine:
    """A machine with its own PATH and cache, and with stub package tools."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.bin, self.cache = folder / "bin", folder / "cache"
        self.log, self.lists, self.broken = (
            folder / "log",
            folder / "lists",
            folder / "broken",
        )
        self.bin.mkdir()
        for name in ("dirname", "readlink", "mkdir", "touch", "chmod", "sh"):
            (self.bin / name).symlink_to(
                f"/bin/{name}" if Path(f"/bin/{name}").exists() else f"/usr/bin/{name}"
            )
        monkeypatch.setenv("PATH", str(self.bin))
        self.program("apt-get", APT.format(log=self.log, lists=self.lists))
        self.program("dpkg-deb", DPKG.format(broken=self.broken))

    def program(self, name: str, text: str) -> Path:
        path = self.bin / name
        path.write_text(text)
        path.chmod(0o755)
        return path

    def have(self) -> Path:
        return Installer(lambda _: None, self.cache).browser()

    def asked(self, word: str) -> int:
        return (
            sum(word in line for line in self.log.read_text().splitlines())
            if self.log.exists()
            else 0
        )


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(tmp_path, monkeypatch)


def test_one_on_path_is_used_if_it_starts(machine: Machine) -> None:
    machine.program("chromium", "#!/bin/sh\nexit 1\n")
    works = machine.program("google-chrome", "#!/bin/sh\necho Chrome 1\n")
    assert machine.have() == works
    assert machine.asked("download") == 0


def test_it_is_unpacked_once_with_the_libraries_that_are_missing(
    machine: Machine,
) -> None:
    machine.lists.touch()
    program = machine.have()
    assert program == machine.have() == machine.cache / "debian/browser/bin/browser"
    assert (
        machine.log.read_text()
        .splitlines()[-1]
        .endswith("download chromium-headless-shell libwidget1")
    )
    assert (machine.asked("download"), machine.asked("update")) == (1, 0)
    assert list(machine.cache.rglob("*.deb")) == []


def test_missing_package_lists_are_downloaded_first(
    machine: Machine,
) -> None:
    machine.have()
    assert (machine.asked("update"), machine.asked("simulate")) == (1, 2)


def test_a_broken_program_is_unpacked_again(machine: Machine) -> None:
    for library in machine.have().parents[1].rglob("*.so.1"):
        library.unlink()
    machine.have()
    assert machine.asked("download") == 2


def test_a_program_that_does_not_start_is_an_error_with_a_next_step(
    machine: Machine,
) -> None:
    machine.broken.touch()
    with pytest.raises(InstallFailed, match=r"does not start here; install Chromium"):
        machine.have()
    assert not (machine.cache / "debian" / "browser").exists()


def test_without_package_tools_the_error_has_a_next_step(machine: Machine) -> None:
    (machine.bin / "apt-get").unlink()
    with pytest.raises(InstallFailed, match=r"no apt-get .*install Chromium"):
        machine.have()
