"""`modelplane set image`: change the images of a deployment's containers."""

import asyncio
from collections.abc import Iterator, Mapping
from typing import Annotated

import typer

from api_types.hints import nearest
from client.commands import options
from client.follow.checked_edit import edit_each
from fleet_client.errors import Refused
from fleet_client.refs.targets import objects_named
from fleet_client.refs.tree import Tree

_KIND = "ModelDeployment"
_EVERY = "*"

set_fields = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Set single fields of objects.",
)


@set_fields.callback()
def _group() -> None:
    """Keep `set` a group although it has one command."""


@set_fields.command("image")
def image(
    words: Annotated[
        list[str],
        typer.Argument(
            help="Deployments (`md/qwen`), then CONTAINER=IMAGE, ENGINE/CONTAINER=IMAGE "
            "or `*=IMAGE` for each change."
        ),
    ],
    namespace: options.Namespace = None,
) -> None:
    """Set the images of containers, which starts a rollout.

    A container's name means the containers of that name in all engines and members.

    For example:
      modelplane set image md/qwen engine=vllm/vllm-openai:v0.11.0 -n ml
      modelplane set image md/qwen prefill/engine=vllm/vllm-openai:v0.11.0
      modelplane set image md/qwen '*=registry.example.com/vllm:v0.11.0'
    """
    changes = dict(word.split("=", 1) for word in words if "=" in word)
    targets = objects_named([word for word in words if "=" not in word], namespace)
    if not changes or not all(changes.values()):
        raise Refused(
            "no image to set" if not changes else "an image is empty",
            next_step="write CONTAINER=IMAGE, such as `engine=vllm/vllm-openai:v0.11.0`",
        )
    for target in targets:
        if target.kind.kind != _KIND:
            raise Refused(
                f"{target.title} has no images",
                next_step=f"name a {_KIND}: `modelplane set image md/NAME CONTAINER=IMAGE`",
            )
    asyncio.run(
        edit_each(targets, lambda tree: with_images(tree, changes), "image updated")
    )


def with_images(manifest: Tree, changes: Mapping[str, str]) -> Tree:
    """Set images in a copy of a deployment's manifest, and return it.

    Raise `Refused` for a container that does not exist.
    """
    found = list(_containers(manifest))
    for name, wanted in changes.items():
        matching = [
            container
            for engine, container in found
            if name in (_EVERY, container["name"], f"{engine}/{container['name']}")
        ]
        if not matching:
            known = sorted({container["name"] for _, container in found})
            close = nearest(name.rpartition("/")[2], known)
            raise Refused(
                f"{_KIND} {manifest['metadata']['name']} has no container {name!r}"
                + (f"; did you mean {close}?" if close else ""),
                next_step=f"name one of: {', '.join(known)}, or `{_EVERY}` for all",
            )
        for container in matching:
            container["image"] = wanted
    return manifest


def _containers(manifest: Tree) -> Iterator[tuple[str, Tree]]:
    """Yield each container with the name of its engine."""
    for engine in manifest["spec"]["template"]["spec"]["engines"]:
        for member in engine["members"]:
            pod = member["template"]["spec"]
            for field in ("initContainers", "containers"):
                for container in pod.get(field) or ():
                    yield engine["name"], container
