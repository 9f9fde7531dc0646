"""axe-core, which finds problems of accessibility in an open page.

`package-lock.json` has its hash. npm installs it once into the cache folder of the
testbed, and the browser runs it in tests only: no page loads it.
"""

import asyncio
import hashlib
import shutil
import tempfile
from pathlib import Path
from typing import Any

from testbed.programs.install import cache_folder
from tests.front.browser import Tab

FOLDER = Path(__file__).parent
_FILES = ("package.json", "package-lock.json")
_SCRIPT = "node_modules/axe-core/axe.min.js"
_RUN = """axe.run(document, {resultTypes: ['violations']}).then((found) =>
  found.violations.map((each) => [each.id, ...each.nodes.map((node) => node.html)]))"""


async def axe_script() -> str:
    """Return the script, which is installed if it is missing."""
    lock = (FOLDER / "package-lock.json").read_bytes()
    place = cache_folder() / f"axe-{hashlib.sha256(lock).hexdigest()[:16]}"
    if not (place / _SCRIPT).exists():
        await _install(place)
    return (place / _SCRIPT).read_text()


async def _install(place: Path) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=place.parent) as folder:
        for name in _FILES:
            shutil.copy(FOLDER / name, folder)
        command = ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"]
        process = await asyncio.create_subprocess_exec(*command, cwd=folder)
        assert await process.wait() == 0, "npm could not install axe-core"
        shutil.copytree(folder, place, dirs_exist_ok=True)


async def findings(tab: Tab) -> list[list[Any]]:
    """Return the rules that the page breaks, each with its elements."""
    await tab.value(f"{await axe_script()}; undefined")
    found: list[list[Any]] = await tab.value(_RUN)
    return found
