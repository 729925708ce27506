"""ElasticQuota of either API group -> `QuotaObserved`, without what status loops write on it."""

from typing import Any

from producers.observe.fields import amounts, mapping, observing, strings, text, version
from producers.observe.podgroups import api_group
from schemas.labels import QUOTA_STATUS_ANNOTATIONS, kept_annotations
from schemas.observations import QuotaObserved
from schemas.quantities import QUANTITY_MAX


def _minimal(seen: QuotaObserved, _why: str) -> QuotaObserved:
    return seen.model_copy(update={"labels": {}, "annotations": {}})


@observing("ElasticQuota", _minimal)
def observe_quota(raw: dict[str, Any], epoch: str | None = None) -> QuotaObserved:
    """The observation of an ElasticQuota in the API server's JSON. Raises `InvalidMessage`."""
    metadata = mapping(raw.get("metadata"), "metadata")
    spec = mapping(raw.get("spec"), "spec")
    annotations = strings(metadata.get("annotations"), "metadata.annotations")
    return QuotaObserved(
        uid=text(metadata.get("uid"), "metadata.uid"),
        rv=version(metadata),
        group=api_group(raw),
        namespace=text(metadata.get("namespace"), "metadata.namespace"),
        name=text(metadata.get("name"), "metadata.name"),
        labels=strings(metadata.get("labels"), "metadata.labels"),
        annotations={
            name: value
            for name, value in kept_annotations(annotations).items()
            if name not in QUOTA_STATUS_ANNOTATIONS
        },
        min=_limits(spec.get("min"), "spec.min"),
        max=_limits(spec.get("max"), "spec.max"),
        epoch=epoch,
    )


def _limits(value: Any, path: str) -> dict[str, int]:
    return {
        name: max(-QUANTITY_MAX, min(QUANTITY_MAX, amount))
        for name, amount in sorted(amounts(value, path).items())
    }
