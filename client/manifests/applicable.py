"""The manifests of one `apply`: read, admitted, of kinds that users write, in the order of the kinds table."""

from collections.abc import Sequence

from api_types.resources.kinds import BY_KIND, KINDS
from api_types.validation.manifests import Manifest
from client.errors import Refused
from client.manifests.documents import admit_documents, print_warnings, read_documents


def read_manifests(files: Sequence[str] | None, namespace: str | None) -> list[Manifest]:
    """Read, check and sort the manifests of files. Raises `Refused` with everything that is wrong."""
    admitted = admit_documents(read_documents(files), namespace)
    print_warnings(admitted)
    manifests = [one.manifest for one in admitted]
    problems = [problem for problem in map(_problem, manifests) if problem]
    if problems:
        raise Refused("these objects cannot be applied; nothing was sent", details=problems, next_step="remove them from the files")
    order = {info.kind: at for at, info in enumerate(KINDS)}
    return sorted(manifests, key=lambda manifest: order.get(manifest.kind, -1))


def _problem(manifest: Manifest) -> str:
    """Say why a kind cannot be applied; empty if it can."""
    info = BY_KIND.get(manifest.kind)
    if info is None:
        return ""
    title = f"{manifest.kind} {manifest.metadata.name}"
    if not info.user_may_apply:
        article = "an" if info.written_instead[0] in "AEIOU" else "a"
        return f"{title}: written by the control plane; write {article} {info.written_instead} instead"
    return ""
