"""Programs of the testbed that the cache already contains."""

from pathlib import Path

from api_types.sections.stacks import StackSettings
from testbed.programs.install import cache_folder
from testbed.programs.versions import TOOLS


def cached(name: str) -> list[Path]:
    """Return the paths of a tool's programs, whether or not they exist yet."""
    return [
        cache_folder() / "tools" / f"{tool.name}-{tool.version}" / "bin" / binary
        for tool in TOOLS
        if tool.name == name
        for binary in tool.packages
    ]


def with_cached_helm(settings: StackSettings) -> StackSettings:
    """Return the cached helm, or `helm` from PATH if the cache has none."""
    for helm in filter(Path.is_file, cached("helm")):
        return settings.model_copy(update={"helm": str(helm)})
    return settings
