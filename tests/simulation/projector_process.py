"""The projector's role as a process of the simulation, and the disk that its tables are on.

The product keeps the tables on RocksDB through Faust; here they are dictionaries, written by the same
role. What stood there when the process died is there when its successor starts, unless the disk was
lost, or one table, or rows of one.
"""

from streams.projector import TABLES, Projector
from streams.recovery import recover
from streams.tables import TablesRole
from streams.translate import State
from tests.simulation.chaos import Chaos
from tests.simulation.processes import RoleProcess, World
from tests.simulation.violation import Violation


class Disk:
    """What one projector has on disk: table -> key -> row."""

    def __init__(self) -> None:
        self.tables: dict[str, dict[bytes, bytes]] = {name: {} for name in TABLES}

    def suffer(self, chaos: Chaos) -> None:
        """Its process has died; what had not been written is gone, or more."""
        if chaos.happens("disk_wiped"):
            self.tables = {name: {} for name in TABLES}
        table = self.tables[chaos.dice.choice(TABLES)]
        if chaos.happens("table_lost"):
            table.clear()
        elif chaos.happens("rows_lost"):
            for key in [key for key in table if chaos.dice.random() < 0.5]:
                del table[key]


class ProjectorProcess(RoleProcess):
    """A projector on a disk of its own."""

    role = "projector"

    def __init__(self, world: World, name: str) -> None:
        super().__init__(world, name)
        self.disk = world.take_disk()
        found = recover(self.history()).decider
        self._tables = TablesRole(Projector(found.state), found.decisions_offset)
        self._tables.attach(self.disk.tables)
        self._tables.mend_rows()
        self.start(self.work(self._tables, places=self.begin(self._tables)))

    @property
    def folded(self) -> int:
        """Sequence of the last record whose outcome the tables hold."""
        return self._tables.projector.state.sequence

    def die(self) -> None:
        """The disk stays behind."""
        super().die()
        self.world.leave_disk(self.disk)

    def check(self, refolded: State) -> None:
        """Raises `Violation` when a table differs from a fold of the log from scratch."""
        wanted: dict[str, dict[bytes, bytes | None]] = {name: {} for name in TABLES}
        for table, key, row in Projector(refolded).all_rows():
            wanted[table][key.encode()] = row
        for name in TABLES:
            if wanted[name] != self.disk.tables[name]:
                keys = wanted[name].items() ^ self.disk.tables[name].items()
                subject = min(key.decode() for key, _ in keys)
                detail = f"{self.name}: row {subject} of the table {name} is not that of a refold"
                raise Violation("tables-differ", refolded.sequence, subject, detail)
