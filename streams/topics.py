"""The one table of topic settings: what `lockstep topics create` makes and `lockstep topics check`
compares.

Names stand in `schemas.topics`; docs are generated from here. Intake, journal and decisions are
history: never compacted, kept for ever unless the operator archives them. Only checkpoints are
compacted (the newest of each key, tombstones remove old ones). One partition a scheduling domain.
"""

from dataclasses import dataclass
from typing import Final

from schemas.topics import ALL, CHECKPOINTS, DEADLETTER

MESSAGE_BYTES_MAX: Final = 8 * 1024 * 1024
REPLICATION_WANTED: Final = 3
FOR_EVER_MS: Final = -1
DEADLETTER_MS: Final = 90 * 24 * 3600 * 1000
#: How long a tombstone stays readable, so that a slow reader of checkpoints sees it.
TOMBSTONE_MS: Final = 24 * 3600 * 1000


@dataclass(frozen=True, slots=True)
class TopicSettings:
    """Settings of one topic.

    `retention_ms` -1: for ever; it means nothing for a compacted topic.
    """

    compacted: bool = False
    retention_ms: int = FOR_EVER_MS

    def kafka_config(self, replication: int) -> dict[str, str]:
        """Broker-side settings at the given number of copies."""
        config = {
            "cleanup.policy": "compact" if self.compacted else "delete",
            "max.message.bytes": str(MESSAGE_BYTES_MAX),
            "min.insync.replicas": str(2 if replication >= REPLICATION_WANTED else 1),
            "retention.bytes": "-1",
            "retention.ms": str(self.retention_ms),
            "unclean.leader.election.enable": "false",
        }
        if self.compacted:
            config["delete.retention.ms"] = str(TOMBSTONE_MS)
        return config


#: Short topic name -> its settings.
SETTINGS: Final[dict[str, TopicSettings]] = {
    **{name: TopicSettings() for name in ALL},
    CHECKPOINTS: TopicSettings(compacted=True),
    DEADLETTER: TopicSettings(retention_ms=DEADLETTER_MS),
}


def changelogs(domains: int) -> dict[str, TopicSettings]:
    """Topics that Faust wants for the projector's tables, by short name; they stay empty (`streams.tables`).

    Made by us, so that they have as many copies as the rest; Faust would make them with one.
    """
    from streams.projector import TABLES  # brings the core along; few callers need this

    apps = ["projector", *(f"projector-{domain}" for domain in range(1, domains))]
    return {
        f"{app}-{table}-changelog": TopicSettings(compacted=True)
        for app in apps
        for table in TABLES
    }
