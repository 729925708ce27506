"""Pods with a marker wherever a secret may stand, and a search for it. For the tests that nothing of it is kept.

A label is kept by design; its own marker shows that a search finds what is there.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from schemas.topics import ALL
from streams.log import open_reader

#: A valid name of an object, for it also stands in names of Secrets.
MARKER = "marker-of-a-secret"
KEPT = "marker-of-a-label"


def secret_pod(name: str, cpu: str, *, namespace: str = "default") -> dict[str, Any]:
    """A pod for Lockstep that the API server takes, with the marker in every field that may hold a secret."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": {"example.com/label": KEPT},
            "annotations": {
                "example.com/token": MARKER,
                f"{MARKER}.example.com/name": "x",
                "kubectl.kubernetes.io/last-applied-configuration": f'{{"env":"{MARKER}"}}',
            },
        },
        "spec": {
            "schedulerName": "lockstep",
            "initContainers": [_container("init", "1m")],
            "containers": [_container("main", cpu)],
            "imagePullSecrets": [{"name": MARKER}],
            "hostname": MARKER,
            "hostAliases": [{"ip": "10.0.0.1", "hostnames": [MARKER]}],
            "dnsConfig": {"searches": [f"{MARKER}.example.com"]},
            "volumes": [
                {"name": "secret", "secret": {"secretName": MARKER}},
                {"name": "config", "configMap": {"name": MARKER}},
                {"name": "path", "hostPath": {"path": f"/{MARKER}"}},
                {"name": "csi", "csi": {"driver": "d", "volumeAttributes": {"token": MARKER}}},
            ],
        },
    }


def _container(name: str, cpu: str) -> dict[str, Any]:
    probe = {"exec": {"command": ["sh", "-c", MARKER]}}
    return {
        "name": name,
        "image": f"registry.example.com/{MARKER}:1",
        "command": ["sh", "-c", f"export TOKEN={MARKER}"],
        "args": [f"--password={MARKER}"],
        "workingDir": f"/{MARKER}",
        "env": [
            {"name": "TOKEN", "value": MARKER},
            {"name": "KEY", "valueFrom": {"secretKeyRef": {"name": MARKER, "key": MARKER}}},
        ],
        "envFrom": [{"secretRef": {"name": MARKER}}, {"prefix": "P_", "secretRef": {"name": "s"}}],
        "resources": {"requests": {"cpu": cpu, "memory": "1Mi"}},
        "volumeMounts": [{"name": "secret", "mountPath": f"/{MARKER}"}],
        **({"livenessProbe": probe} if name == "main" else {}),
    }


def topics_of(url: str) -> Iterator[tuple[str, bytes]]:
    """Every key and value of every topic, with the topic's name."""
    reader = open_reader(url)
    for topic in ALL:
        for record in reader.read(topic, 0, 1_000_000) if reader.end_offset(topic) else ():
            yield f"topic {topic}", (record.key or b"") + b" " + (record.value or b"")
    reader.close()


def files_below(folder: Path) -> Iterator[tuple[str, bytes]]:
    """Every file, raw; a store may have packed what is in it, so its content is to be searched, too."""
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            yield str(path.relative_to(folder)), path.read_bytes()


def places_of(marker: str, places: Mapping[str, bytes | str]) -> list[str]:
    """Names of the places that hold the marker."""
    wanted = marker.encode()
    return [
        name
        for name, held in places.items()
        if wanted in (held.encode() if isinstance(held, str) else held)
    ]
