"""The reading port to the API server: list in pages, watch with bookmarks, and how each can fail.

Must not decide what to do about a failure: `producers.informer` does. `producers.kube_client` is
the real adapter; tests bring their own.
"""

from collections.abc import AsyncGenerator
from typing import Any, Protocol

from schemas.errors import LockstepError
from schemas.versions import VERSIONS


class Expired(LockstepError):
    """The version (or the page) that was asked for is no longer kept: list anew."""


class UnknownKind(LockstepError):
    """The API server does not know the resource in any version that is read: its CRD is missing, or it is off."""


class KubeReader(Protocol):
    """Reads objects as plain JSON. Both raise `Expired`, `UnknownKind` or `Unavailable`."""

    async def list_page(self, resource: str, limit: int, continue_: str) -> dict[str, Any]:
        """One page of a consistent list; `continue_` is the token of the page before, or empty."""

    def watch(self, resource: str, version: str) -> AsyncGenerator[list[dict[str, Any]], None]:
        """Events after `version`, bookmarks too, in bursts: what one read brought, never empty.

        A plain end means: go on from the last version seen.
        """


def resource_path(resource: str, version: str = "") -> str:
    """The path of all objects of `resource` in that version, or the preferred one, in every namespace."""
    plural, _, group = resource.partition(".")
    root = f"/apis/{group}" if group else "/api"
    return f"{root}/{version or VERSIONS[resource][0]}/{plural}"
