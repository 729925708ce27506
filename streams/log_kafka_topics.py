"""The topics of a log on Kafka: made with the settings of `streams.topics`, compared with them, and
never made a second time in silence. Called by `streams.log` only.
"""

from typing import Final

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic

from schemas.errors import Fatal, Unavailable
from schemas.topics import DECISIONS, INTAKE, JOURNAL
from streams.chain import read_header
from streams.log import LogAddress, LogSettings
from streams.log_kafka import KafkaReader, await_topics, note_there
from streams.log_kafka_client import client_config, translated
from streams.topics import REPLICATION_WANTED, SETTINGS, changelogs

#: What cannot be made anew; all others are caches, or for people.
HISTORY: Final = (JOURNAL, DECISIONS, *INTAKE)


def _admin(address: LogAddress, settings: LogSettings) -> AdminClient:
    with translated(address, "client settings"):
        return AdminClient(client_config(address, settings))


def check_kafka_history(address: LogAddress, domains: int, settings: LogSettings) -> None:
    """Raises `Fatal` when a topic is missing that the log has records of: it was deleted.

    An empty one in its place would be a history that never was.
    """
    admin = _admin(address, settings)
    with translated(address, "list of topics", admin):
        present = admin.list_topics(timeout=settings.timeout_s).topics
    note_there(address, present)
    missing = {name for name in HISTORY if address.prefix + name not in present}
    for domain in range(domains if missing else 0):
        reader = KafkaReader(address, domain, settings)
        try:
            filled = [n for n in HISTORY if n not in missing and reader.end_offset(n) > 0]
            needed = {JOURNAL, DECISIONS} if filled else set()
            if JOURNAL in filled:
                needed |= _taken_from(reader)
            if lost := sorted(needed & missing):
                raise Fatal(
                    f"topic {address.prefix}{lost[0]} is missing, though {address.prefix}{filled[0]}"
                    " holds records: it was deleted, or this user may not see it; it is not made anew; restore"
                    " it, or begin a new log (docs/runbooks/LockstepTopicDeleted.md)",
                    cause="topic_deleted",
                )
        finally:
            reader.close()


def _taken_from(reader: KafkaReader) -> set[str]:
    """Intake topics that the journal has taken messages from, by the account of its last entry."""
    found = reader.read(JOURNAL, reader.end_offset(JOURNAL) - 1, 1)
    header = read_header(found[0].value or b"") if found else None
    return set() if header is None else set(header.positions)


def create_kafka_topics(
    address: LogAddress, domains: int, replication: int | None, settings: LogSettings
) -> list[str]:
    """Make what is missing; returns the short names made. Existing topics are left as they are."""
    admin = _admin(address, settings)
    with translated(address, "list of topics", admin):
        cluster = admin.list_topics(timeout=settings.timeout_s)
    copies = replication or min(REPLICATION_WANTED, len(cluster.brokers))
    topics = SETTINGS | changelogs(domains)
    missing = [name for name in topics if address.prefix + name not in cluster.topics]
    if not missing:
        return []
    futures = admin.create_topics(
        [
            NewTopic(
                address.prefix + name,
                num_partitions=domains,
                replication_factor=copies,
                config=topics[name].kafka_config(copies),
            )
            for name in missing
        ],
        operation_timeout=settings.timeout_s,
        request_timeout=settings.timeout_s,
    )
    made = []
    for name, future in futures.items():
        try:
            with translated(address, f"create topic {name}"):
                future.result()
        except Unavailable as error:
            cause = error.__cause__
            code = cause.args[0].code() if isinstance(cause, KafkaException) else None
            if code == KafkaError.TOPIC_ALREADY_EXISTS:
                continue  # made by somebody else meanwhile; `check_topics` compares it
            raise
        made.append(name.removeprefix(address.prefix))
    names = {address.prefix + name for name in missing}
    with translated(address, "new topics"):
        late = await_topics(admin, names, settings, 10.0)
    note_there(address, names.difference(late))
    return made


def check_kafka_topics(address: LogAddress, domains: int, settings: LogSettings) -> list[str]:
    """One line for each difference between the broker and `streams.topics`."""
    admin = _admin(address, settings)
    with translated(address, "list of topics", admin):
        cluster = admin.list_topics(timeout=settings.timeout_s)
    topics = SETTINGS | changelogs(domains)
    differences = []
    present = []
    for short in topics:
        name = address.prefix + short
        topic = cluster.topics.get(name)
        if topic is None:
            differences.append(f"{name}: missing; `lockstep topics create` makes it")
            continue
        present.append(short)
        if len(topic.partitions) != domains:
            differences.append(
                f"{name}: {len(topic.partitions)} partitions, should be {domains} (one a domain)"
            )
    if not present:
        return differences
    resources = [ConfigResource(ConfigResource.Type.TOPIC, address.prefix + s) for s in present]
    described = admin.describe_configs(resources, request_timeout=settings.timeout_s)
    for resource, future in described.items():
        with translated(address, f"settings of {resource.name}"):
            found = future.result()
        partitions = cluster.topics[resource.name].partitions
        copies = min((len(part.replicas) for part in partitions.values()), default=1)
        wanted = topics[resource.name.removeprefix(address.prefix)].kafka_config(copies)
        for key, value in wanted.items():
            have = found[key].value if key in found else None
            if have != value:
                differences.append(f"{resource.name}: {key} is {have}, should be {value}")
    return differences
