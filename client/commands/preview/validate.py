"""`modelplane validate`: the checks of `apply`, without a server.

It knows every kind, including those that this release does not serve.
"""

from client.commands import options
from client.manifests.documents import admit_documents, print_warnings, read_documents


def validate(files: options.Files = None, namespace: options.Namespace = None) -> None:
    """Check manifests in full and report every error at once.

    The exit code is 2 if there is one.

    For example:
      modelplane validate -f examples/quickstart.yaml
      modelplane validate -f manifests/
    """
    admitted = admit_documents(read_documents(files), namespace)
    print_warnings(admitted)
    for one in admitted:
        print(f"{one.manifest.kind.lower()}/{one.manifest.metadata.name} is valid")
