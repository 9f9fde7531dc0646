"""The product's image, built from `deploy/Containerfile` on a machine that reaches no registry.

python -m tests.environment.product_image      build the image unless it is in the cache

Debian stands in for both base images: debootstrap makes a system with Python 3.11, and the
machine's own Go is mounted into the stage that builds helm. The build reads the package index and
the certificates that pip uses on this machine.
"""

import ast
import configparser
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

from tests.environment.container_engine import NEEDS_ROOT, ContainerEngine, EngineFailed

ROOT = Path(__file__).parents[2]
CONTAINERFILE = ROOT / "deploy" / "Containerfile"
# The Debian release with the Python of the base image.
SUITE = "bookworm"
INCLUDED = ("python3", "python3-venv", "python3-pip", "ca-certificates")
LABEL = "modelplane.test"
KEPT_HOURS = 24
CERTIFICATES = Path("/etc/ssl/certs")
GO_SETTINGS = (
    *("GOPROXY", "GOSUMDB", "GONOSUMDB", "GONOPROXY", "GOPRIVATE", "GOFLAGS"),
    *("GOTOOLCHAIN", "GOMODCACHE", "GOCACHE", "GOROOT"),
)
GO_FOLDERS = {"GOROOT": "ro", "GOMODCACHE": "rw", "GOCACHE": "rw"}


def built_image(engine: ContainerEngine) -> str:
    """Return the name of this tree's image, and build the image unless it exists.

    Raises EngineFailed.
    """
    name = f"localhost/modelplane:{content_digest()}"
    with engine.locked():
        engine.install()
        if not engine.has_image(name):
            _build(engine, name)
    return name


def content_digest() -> str:
    """Digest every input of the image, so that another tree has an image of its own."""
    digest = hashlib.sha256(Path(__file__).read_bytes())
    for path in (CONTAINERFILE, *_copied_files()):
        content = hashlib.sha256(path.read_bytes()).hexdigest()
        digest.update(f"{path.relative_to(ROOT)} {content}\n".encode())
    return digest.hexdigest()[:12]


def pip_settings() -> str:
    """Return the settings of pip on this machine as one file, from files and variables."""
    command = [sys.executable, "-m", "pip", "config", "list"]
    listed = subprocess.run(
        command, capture_output=True, text=True, check=True
    ).stdout.splitlines()
    # Variables come first in the list, and win.
    variables_last = sorted(listed, key=lambda line: line.startswith(":env:"))
    settings = configparser.RawConfigParser()
    for line in variables_last:
        name, _, value = line.partition("=")
        section, _, key = name.rpartition(".")
        section = "global" if section == ":env:" else section
        if not settings.has_section(section):
            settings.add_section(section)
        settings.set(section, key, ast.literal_eval(value))
    with tempfile.TemporaryFile("w+") as file:
        settings.write(file)
        file.seek(0)
        return file.read()


def _copied_files() -> Iterable[Path]:
    steps = re.findall(
        r"^COPY (?!--from)(.*)$", CONTAINERFILE.read_text(), re.MULTILINE
    )
    for source in sorted({word for step in steps for word in step.split()[:-1]}):
        path = ROOT / source
        for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
            if file.is_file() and "__pycache__" not in file.parts:
                yield file


def _build(engine: ContainerEngine, name: str) -> None:
    older = ["--filter", f"label={LABEL}=image", "--filter", f"until={KEPT_HOURS}h"]
    engine.run("podman", "image", "prune", "--all", "--force", *older)
    bases = dict(
        re.findall(r"^ARG (\w+)=(\S+)$", CONTAINERFILE.read_text(), re.MULTILINE)
    )
    _ensure_python_base(engine, bases["PYTHON"])
    go = _go_settings()
    variables = [f"ENV {key}={json.dumps(value)}" for key, value in go.items()]
    path = f"ENV PATH={go['GOROOT']}/bin:/usr/local/bin:/usr/bin:/bin"
    recipe = "\n".join([f"FROM {bases['PYTHON']}", *variables, path])
    build = [
        "buildah",
        "bud",
        "--isolation",
        "chroot",
        "--pull-never",
        "--network",
        "host",
    ]
    engine.run(
        *build, "--layers", "--tag", bases["GO"], "--file", "-", ".", stdin=recipe
    )
    with tempfile.TemporaryDirectory() as folder:
        pip = Path(folder) / "pip.conf"
        pip.write_text(pip_settings())
        mounts = [f"{pip}:/etc/pip.conf:ro"]
        mounts += [
            f"{path}:{path}:ro" for path in sorted({CERTIFICATES, *_named_paths(pip)})
        ]
        mounts += [f"{go[key]}:{go[key]}:{mode}" for key, mode in GO_FOLDERS.items()]
        volumes = [word for mount in mounts for word in ("--volume", mount)]
        label = ["--label", f"{LABEL}=image"]
        target = ["--tag", name, "--file", str(CONTAINERFILE), str(ROOT)]
        progress = (
            "building deploy/Containerfile, again after each change of the product"
        )
        engine.run(*build, "--layers", *volumes, *label, *target, progress=progress)


def _ensure_python_base(engine: ContainerEngine, name: str) -> None:
    """Make a Debian system with Python and import it under the base image's name."""
    made_from = hashlib.sha256(repr((SUITE, INCLUDED)).encode()).hexdigest()[:12]
    if engine.has_image(name):
        label = f'{{{{index .Labels "{LABEL}"}}}}'
        if (
            engine.run("podman", "image", "inspect", "--format", label, name).strip()
            == made_from
        ):
            return
    with tempfile.TemporaryDirectory(dir=engine.folder) as folder:
        system, archive = Path(folder) / "system", Path(folder) / "system.tar"
        include = f"--include={','.join(INCLUDED)}"
        bootstrap = [
            "debootstrap",
            "--variant=minbase",
            include,
            SUITE,
            str(system),
            *_mirror(engine),
        ]
        engine.run(*bootstrap, progress=f"making a Debian {SUITE} with Python, once")
        (system / "usr" / "bin" / "python").symlink_to("python3")
        shutil.rmtree(system / "var" / "cache" / "apt")
        engine.run(
            "tar", "--create", "--file", str(archive), "--directory", str(system), "."
        )
        change = f"LABEL {LABEL}={made_from}"
        engine.run("podman", "import", "--change", change, str(archive), name)


def _mirror(engine: ContainerEngine) -> list[str]:
    """Return the mirror of Debian that apt uses here; without one, debootstrap has a default."""
    ask = ["apt-get", "indextargets", "--format", "$(SITE)", "Origin: Debian"]
    return engine.run(*ask).split()[:1]


def _go_settings() -> dict[str, str]:
    if shutil.which("go") is None:
        raise EngineFailed(
            "the image's helm is built with the machine's Go: install Go 1.26"
        )
    command = ["go", "env", "-json", *GO_SETTINGS]
    # Outside of any module, whose toolchain line would choose another Go.
    found = subprocess.run(command, cwd="/", capture_output=True, text=True, check=True)
    settings: dict[str, str] = json.loads(found.stdout)
    return {key: value for key, value in settings.items() if value}


def _named_paths(settings: Path) -> set[Path]:
    """Find the files and folders that settings of pip name."""
    named = {Path(word) for word in re.findall(r"(?<=\s)/\S+", settings.read_text())}
    return {
        path for path in named if path.exists() and CERTIFICATES not in path.parents
    }


def main() -> None:
    """Build the image; without root, say why the tests of it are left out."""
    if os.geteuid() != 0:
        say(f"image: {NEEDS_ROOT}; the tests of the image are left out")
        return
    try:
        say(f"image: {built_image(ContainerEngine(say))}")
    except EngineFailed as error:
        sys.exit(str(error))


def say(line: str) -> None:
    """Show progress at once."""
    print(line, flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
