"""Addresses and settings of a log: what is taken, and what a person is told about the rest."""

import subprocess
import sys
from pathlib import Path

import pytest

from schemas.errors import LockstepError
from streams.log import LogAddress, LogSettings


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("kafka://a:9092,b:9093", LogAddress("kafka", "a:9092,b:9093", "lockstep.")),
        ("kafka://a:9092?prefix=x.", LogAddress("kafka", "a:9092", "x.")),
        ("embedded:///var/lib/log/", LogAddress("embedded", "/var/lib/log", "lockstep.")),
        ("memory://test?prefix=", LogAddress("memory", "test", "")),
    ],
)
def test_addresses_are_taken_apart(url: str, expected: LogAddress) -> None:
    """Scheme, place and prefix come out of an address."""
    assert expected == LogAddress.parse(url)


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("kafka://", "want one of kafka://host:9092, embedded:///path, memory://name"),
        ("pulsar://a", "want one of"),
        ("/var/lib/log", "want one of"),
        ("embedded://relative/path", "want embedded:///absolute/path"),
        ("embedded:///", "want embedded:///absolute/path"),
        ("kafka://a:9092?sasl=x", "unknown option 'sasl'"),
        ("kafka://user:secret@a:9092", "LOCKSTEP_KAFKA_SASL_USERNAME"),
        ("kafka://user:secret@a:9092?acks=0", "LOCKSTEP_KAFKA_SASL_USERNAME"),
        ("pulsar://user:secret@a", "LOCKSTEP_KAFKA_SASL_USERNAME"),
    ],
)
def test_bad_addresses_say_what_is_right(url: str, said: str) -> None:
    """Each wrong address gets a line that says how it should look."""
    with pytest.raises(LockstepError, match=said) as caught:
        LogAddress.parse(url)
    assert "secret" not in str(caught.value)


def test_settings_come_from_the_environment(tmp_path: Path) -> None:
    """Every field has its variable; the password may lie in a file and is never printed."""
    file, authority = tmp_path / "password", tmp_path / "ca.pem"
    file.write_text("step\n")
    authority.write_text("anything")
    settings = LogSettings.from_environment(
        {
            "LOCKSTEP_KAFKA_SECURITY_PROTOCOL": "sasl_ssl",
            "LOCKSTEP_KAFKA_SASL_MECHANISM": "scram-sha-512",
            "LOCKSTEP_KAFKA_SASL_USERNAME": "lock",
            "LOCKSTEP_KAFKA_SASL_PASSWORD_FILE": str(file),
            "LOCKSTEP_KAFKA_SSL_CA": str(authority),
            "LOCKSTEP_KAFKA_TIMEOUT_S": "5",
        }
    )
    expected = LogSettings(
        security_protocol="SASL_SSL",
        sasl_mechanism="SCRAM-SHA-512",
        sasl_username="lock",
        sasl_password="step",
        ssl_ca=str(authority),
        timeout_s=5.0,
    )
    assert expected == settings
    assert "step" not in repr(settings)
    assert LogSettings() == LogSettings.from_environment({})


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("TIMEOUT_S", "soon"),
        ("TIMEOUT_S", "nan"),
        ("TIMEOUT_S", "-1"),
        ("SASL_PASSWORD_FILE", "/nonexistent/password"),
        ("SECURITY_PROTOCOL", "TLS"),
        ("SASL_MECHANISM", ""),
        ("SASL_MECHANISM", "GSSAPI"),
        ("SSL_CA", "/nonexistent/ca.pem"),
        ("SSL_CERTIFICATE", "/nonexistent/client.pem"),
        ("SSL_KEY", "/nonexistent/client.key"),
    ],
)
def test_bad_settings_name_their_variable(variable: str, value: str) -> None:
    """A setting that cannot be used is named before a broker is asked."""
    good = {"SECURITY_PROTOCOL": "SASL_SSL", "SASL_MECHANISM": "PLAIN"}
    given = {f"LOCKSTEP_KAFKA_{name}": said for name, said in (good | {variable: value}).items()}
    with pytest.raises(LockstepError, match=f"LOCKSTEP_KAFKA_{variable}: (want|cannot read)"):
        LogSettings.from_environment(given)


def test_the_port_loads_no_client() -> None:
    """A memory log is opened and fed without RocksDB, a Kafka client or Faust being imported."""
    program = (
        "import sys; from streams.log import open_reader, open_writer; from streams.feed import Feed\n"
        "open_writer('memory://x').append('pods', None, b''); open_reader('memory://x')\n"
        "print([m for m in ('rocksdict', 'confluent_kafka', 'faust') if m in sys.modules])"
    )
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    assert "[]" == run.stdout.strip()
