"""What every Kafka client here shares: its settings, and its exceptions as ours. Called by `streams.log_kafka` and
`streams.log_kafka_topics`.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException

from schemas.errors import LockstepError, Unavailable
from streams.log import LogAddress, LogSettings

_FORBIDDEN: Final = (
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
)
MISSING: Final = (
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError._UNKNOWN_TOPIC,
    KafkaError._UNKNOWN_PARTITION,
)
#: A producer that is refused for good says so on standard error at any level, unless its log goes elsewhere.
MUTE: Final = logging.getLogger("librdkafka")
MUTE.addHandler(logging.NullHandler())
MUTE.propagate = False


def client_config(address: LogAddress, settings: LogSettings) -> dict[str, Any]:
    """librdkafka settings of every client here: where the brokers are, how to authenticate."""
    config: dict[str, Any] = {
        "bootstrap.servers": address.place,
        "client.id": "lockstep",
        "security.protocol": settings.security_protocol,
        "log_level": 0,  # errors are told by exceptions and `error_cb`, not on standard error
        "error_cb": lambda error: _complain(address, settings, error),
    }
    optional = {
        "sasl.mechanism": settings.sasl_mechanism,
        "sasl.username": settings.sasl_username,
        "sasl.password": settings.sasl_password,
        "ssl.ca.location": settings.ssl_ca,
        "ssl.certificate.location": settings.ssl_certificate,
        "ssl.key.location": settings.ssl_key,
        "ssl.key.password": settings.ssl_key_password,
    }
    config.update({name: value for name, value in optional.items() if value})
    return config


#: Brokers -> what a client last complained of (wrong password, refused certificate, no such host).
_complaints: dict[str, str] = {}


def _complain(address: LogAddress, settings: LogSettings, error: KafkaError) -> None:
    """Keeps what a client says. That all brokers are away is only what follows from it, or all it
    knows of one that wants to be spoken to in another way.
    """
    if error.code() != KafkaError._ALL_BROKERS_DOWN:
        _complaints[address.place] = error.str()
        return
    _complaints.setdefault(
        address.place,
        f"nobody answers in {settings.security_protocol},"
        " which LOCKSTEP_KAFKA_SECURITY_PROTOCOL sets",
    )


@contextmanager
def translated(
    address: LogAddress, what: str, client: Any = None, *, known: bool = False
) -> Iterator[None]:
    """Kafka's exceptions as ours; `what` names the object.

    `known`: the topic has been there, so a broker that does not know it has only just started.

    A failed request says only that it got no answer; why stands in what `client` complained of
    before, which it tells when it is polled.
    """
    try:
        yield
    except KafkaException as error:
        cause = error.args[0]
        code = cause.code() if isinstance(cause, KafkaError) else None
        detail = cause.str() if isinstance(cause, KafkaError) else str(cause)
        if code in MISSING and not known:
            raise LockstepError(
                f"no topic {what} at {address.place}, or no right to see it; `lockstep topics create`"
                " makes it"
            ) from error
        if client is not None:
            client.poll(0)
        complaint = _complaints.pop(address.place, "")
        reason = f"{detail} ({complaint})" if complaint else detail
        if code in _FORBIDDEN:
            reason = f"{detail.rstrip('.')}. No ACL allows it to this user; docs/security.md says who needs which"
        raise Unavailable(f"kafka {address.place}: {what}: {reason}") from error
