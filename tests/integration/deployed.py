"""What stands under deploy/, and a control plane with all of it applied.

Must not test: the modules that begin with `test_` do. `conftest.py` has the fixture `installed`.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import yaml

from tests.integration.api import Api, ApiError, Object, wait_for
from tests.integration.cluster import ControlPlane, running_control_plane

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
HOME = "lockstep-system"

#: Kubernetes serves PodGroups of its own only if it is asked to.
SCHEDULING_GROUPS = (
    "--feature-gates=GenericWorkload=true",
    "--runtime-config=scheduling.k8s.io/v1beta1=true",
)


def documents(*names: str) -> list[Object]:
    """Every document of these files under deploy/."""
    return [
        document
        for name in names
        for document in yaml.safe_load_all((DEPLOY / name).read_text())
        if document is not None
    ]


def crd_files() -> list[str]:
    return [f"crds/{path.name}" for path in sorted((DEPLOY / "crds").glob("*.yaml"))]


@contextmanager
def running_installed() -> Iterator[ControlPlane]:
    """A control plane with everything under deploy/ applied to it; it serves scheduling groups of Kubernetes itself."""
    with running_control_plane(SCHEDULING_GROUPS) as plane:
        admin = plane.api()
        admin.apply(*documents(*crd_files(), "rbac.yaml", "deployment.yaml"))
        for crd in documents(*crd_files()):
            wait_for(crd["metadata"]["name"], lambda crd=crd: established(admin, crd))
        yield plane


def established(admin: Api, crd: Object) -> bool:
    """The API server serves the CRD. For a moment after it says so it answers that storage is (re)initializing."""
    if conditions_of(admin, crd).get("Established") != "True":
        return False
    spec = crd["spec"]
    try:
        for version in spec["versions"]:
            admin.items(f"/apis/{spec['group']}/{version['name']}/{spec['names']['plural']}")
    except ApiError as error:
        if error.status not in (404, 429):
            raise
        return False
    return True


def conditions_of(admin: Api, crd: Object) -> dict[str, str]:
    conditions = admin.get(admin.path(crd))["status"].get("conditions") or []
    return {each["type"]: each["status"] for each in conditions}
