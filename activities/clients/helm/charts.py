"""The charts of a worker: their sources, and one fetched archive of each.

The index of a repository may have several megabytes, so a version is fetched once per
worker and not once per cluster. If a repository replaces a version, a worker detects it
only after a restart.
"""

import asyncio
import re
import shutil
from collections import defaultdict
from pathlib import Path

from activities.clients.helm import failures
from activities.clients.helm.command import HelmCommand, HelmFailed, environment
from activities.clients.helm.crds import Unpackable, read_crds
from activities.clients.helm.folders import WorkerFolder
from activities.clients.helm.limits import HelmLimits
from activities.clients.helm.port import Chart
from api_types.digests import short_hash
from api_types.errors import ChartUnavailable, InvalidInput
from api_types.sections.stacks import StackSettings

_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")
# A full version. Helm interprets `1.7` or `1.x` as a range, and the selected version
# would never equal the wanted one.
_VERSION = re.compile(
    r"v?[0-9]{1,9}\.[0-9]{1,9}\.[0-9]{1,9}(?:[-+][0-9A-Za-z.+-]{1,96})?"
)
_OCI = "oci://"


def source(chart: Chart, mirror: str = "") -> tuple[str, str]:
    """Return the reference of a chart and its repository option, empty for OCI.

    A mirror replaces every repository. Raises InvalidInput.
    """
    repository = (mirror or chart.repository).rstrip("/")
    if not _NAME.fullmatch(chart.name):
        raise InvalidInput(
            f"{chart.name[:80]!r} is not the name of a chart: "
            "lower-case letters, digits and '-'"
        )
    if not _VERSION.fullmatch(chart.version):
        raise InvalidInput(
            f"chart {chart.name}: {chart.version[:80]!r} is not a version, such as v1.17.1"
        )
    if repository.startswith(_OCI):
        return f"{repository}/{chart.name}", ""
    if repository.startswith(("https://", "http://")):
        return chart.name, repository
    raise InvalidInput(
        f"chart {chart.name}: its repository must begin with https://, http:// or {_OCI}"
    )


class ChartStore:
    """The archives that this worker has fetched, in its folder."""

    def __init__(
        self, folder: WorkerFolder, limits: HelmLimits, settings: StackSettings
    ) -> None:
        self._folder = folder
        self._limits = limits
        self._mirror = settings.chart_mirror
        self._locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def archive(self, executable: str, chart: Chart) -> Path:
        """Return the path of the packed chart, after fetching it if it is missing.

        Raises ChartUnavailable and InvalidInput.
        """
        reference, repository = source(chart, self._mirror)
        digest = short_hash([reference, repository, chart.version])
        place = self._folder.path / f"{digest}.tgz"
        async with self._locks[place.name]:
            if not place.is_file():
                await self._fetch(executable, chart, reference, repository, place)
        return place

    async def crds(self, executable: str, chart: Chart) -> list[dict[str, object]]:
        """Return the objects as `HelmPort.crds` does.

        Raises ChartUnavailable and InvalidInput.
        """
        archive = await self.archive(executable, chart)
        try:
            return await asyncio.to_thread(read_crds, archive.read_bytes())
        except Unpackable as error:
            raise InvalidInput(f"chart {chart.name} {chart.version}: {error}") from None

    async def _fetch(
        self,
        executable: str,
        chart: Chart,
        reference: str,
        repository: str,
        place: Path,
    ) -> None:
        origin = repository or reference.rpartition("/")[0]
        where = f"chart {chart.name} {chart.version} of {origin}"
        with self._folder.part() as scratch:
            command = HelmCommand(executable, environment(scratch), self._limits)
            options = [f"--version={chart.version}", f"--destination={scratch}"]
            if repository:
                options.append(f"--repo={repository}")
            try:
                await command.run(["pull", reference, *options])
            except HelmFailed as error:
                raise failures.of_repository(error.stderr, where) from None
            found = list(scratch.glob("*.tgz"))
            if len(found) != 1:
                raise ChartUnavailable(
                    f"{where}: helm pulled {len(found)} archives; "
                    "check what the repository serves"
                )
            await asyncio.to_thread(shutil.move, found[0], place)
