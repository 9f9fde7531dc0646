"""The manifests of one `apply`: read, admitted, and in the order of the kinds table."""

from collections.abc import Sequence

from api_types.resources.kinds import BY_KIND, KINDS
from api_types.validation.manifests import Manifest
from client.manifests.documents import admit_documents, print_warnings, read_documents
from fleet_client.errors import Refused


def read_manifests(
    files: Sequence[str] | None, namespace: str | None
) -> list[Manifest]:
    """Read, check and sort the manifests of files.

    Raise `Refused` with all problems.
    """
    admitted = admit_documents(read_documents(files), namespace)
    print_warnings(admitted)
    manifests = [one.manifest for one in admitted]
    problems = [problem for problem in map(_problem, manifests) if problem]
    if problems:
        raise Refused(
            "these objects cannot be applied; nothing was sent",
            details=problems,
            next_step="remove them from the files",
        )
    order = {info.kind: at for at, info in enumerate(KINDS)}
    return sorted(manifests, key=lambda manifest: order.get(manifest.kind, -1))


def _problem(manifest: Manifest) -> str:
    """Return why users cannot apply the kind, or an empty string if they can."""
    info = BY_KIND.get(manifest.kind)
    if info is None:
        return ""
    title = f"{manifest.kind} {manifest.metadata.name}"
    if not info.user_may_apply:
        article = "an" if info.written_instead[0] in "AEIOU" else "a"
        instead = f"write {article} {info.written_instead} instead"
        return f"{title}: written by the control plane; {instead}"
    return ""
