"""A certificate authority for one test run, and certificates that it signed; made by `openssl`.

Keys are of elliptic curves, files are PEM, and all of it lives in the test's own folder. Must not
touch what the machine trusts. Called by `test_kafka_security.py`.
"""

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.integration.builds import Missing

_AUTHORITY = "basicConstraints=critical,CA:TRUE\nkeyUsage=critical,keyCertSign\n"
_LEAF = "basicConstraints=critical,CA:FALSE\nsubjectAltName=IP:127.0.0.1,DNS:localhost\n"


@dataclass(frozen=True)
class Pair:
    """A certificate and its private key."""

    certificate: Path
    key: Path


class Authority:
    """Signs certificates for the loopback. Raises Missing where there is no openssl."""

    def __init__(self, directory: Path) -> None:
        if shutil.which("openssl") is None:
            raise Missing("openssl is missing (Debian: apt-get install openssl)")
        self._directory = directory
        self.pair = self._make("authority", _AUTHORITY)

    def issue(self, name: str) -> Pair:
        """A certificate for `name`, who listens on the loopback or calls from it."""
        signer = ["-CA", str(self.pair.certificate), "-CAkey", str(self.pair.key)]
        return self._make(name, _LEAF, *signer)

    def _make(self, name: str, extensions: str, *signer: str) -> Pair:
        config = self._directory / f"{name}.cnf"
        config.write_text(
            f"[req]\ndistinguished_name=name\nx509_extensions=more\n[name]\n[more]\n{extensions}"
        )
        pair = Pair(self._directory / f"{name}.pem", self._directory / f"{name}.key")
        command = ["openssl", "req", "-x509", "-config", str(config), "-subj", f"/CN={name}"]
        command += ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"]
        command += ["-out", str(pair.certificate), "-keyout", str(pair.key), *signer]
        subprocess.run(command, check=True, capture_output=True, timeout=60)
        return pair
