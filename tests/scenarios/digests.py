"""Plays all scenarios and prints their digests and command ids as JSON: run in fresh processes to
compare.

`python -m tests.scenarios.digests` from the root of the repository. Used by
`tests.scenarios.test_determinism`.
"""

import json
from pathlib import Path

from lockstep.manifests import read_documents
from lockstep.simulate_play import Play
from schemas.errors import LockstepError
from streams.log_memory import drop_memory_log

SCENARIOS = sorted(Path(__file__).parent.glob("*/*.yaml"))


def digest_of(file: Path) -> list[str]:
    """The digest of each report of a scenario; of one that is refused, the error."""
    try:
        play = Play("memory://digests")
        for document in read_documents([str(file)]):
            play.play(document)
        play.finish()
        return [report["digest"] for report in play.reports]
    except LockstepError as error:
        return [str(error)]
    finally:
        drop_memory_log("digests")


if __name__ == "__main__":
    print(json.dumps({file.name: digest_of(file) for file in SCENARIOS}))
