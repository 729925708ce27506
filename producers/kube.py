"""The reading port to the API server: list in pages, watch with bookmarks, and how each can fail.

Must not decide what to do about a failure: `producers.informer` does. `producers.kube_client` is
the real adapter; tests bring their own.
"""

from collections.abc import AsyncGenerator
from typing import Any, Final, Protocol

from schemas.errors import LockstepError

#: Resource (`plural.group`) -> the API version that is read.
VERSIONS: Final[dict[str, str]] = {
    "pods": "v1",
    "nodes": "v1",
    "namespaces": "v1",
    "priorityclasses.scheduling.k8s.io": "v1",
    "podgroups.scheduling.x-k8s.io": "v1alpha1",
    "podgroups.scheduling.sigs.k8s.io": "v1alpha1",
    "podgroups.scheduling.k8s.io": "v1beta1",
    "elasticquotas.scheduling.x-k8s.io": "v1alpha1",
    "elasticquotas.scheduling.sigs.k8s.io": "v1alpha1",
    "poddisruptionbudgets.policy": "v1",
    "devices.scheduling.koordinator.sh": "v1alpha1",
}


class Expired(LockstepError):
    """The version (or the page) that was asked for is no longer kept: list anew."""


class UnknownKind(LockstepError):
    """The API server does not know the resource: its CRD is missing."""


class KubeReader(Protocol):
    """Reads objects as plain JSON. Both raise `Expired`, `UnknownKind` or `Unavailable`."""

    async def list_page(self, resource: str, limit: int, continue_: str) -> dict[str, Any]:
        """One page of a consistent list; `continue_` is the token of the page before, or empty."""

    def watch(self, resource: str, version: str) -> AsyncGenerator[list[dict[str, Any]], None]:
        """Events after `version`, bookmarks too, in bursts: what one read brought, never empty.

        A plain end means: go on from the last version seen.
        """


def resource_path(resource: str) -> str:
    """The path of all objects of `resource`, in every namespace."""
    plural, _, group = resource.partition(".")
    root = f"/apis/{group}" if group else "/api"
    return f"{root}/{VERSIONS[resource]}/{plural}"
