"""A small role in a process of its own, to be killed: folds `pods` through a Faust App.

For each record it appends one to `decisions`: the offset it has folded and a hash over all values
so far; it prints every twentieth offset. At start it takes both from its own last output, as the
real roles do from theirs. With `--table` each fold also writes a Faust table, whose own next offset
stands in it; the table is the last line printed. Beside the role, `--feed COUNT` appends records to
`pods` until there are COUNT.

Called by `test_faust_recovery.py`: python -m tests.integration.faust_role URL DATADIR [options]
"""

import argparse
import asyncio
import hashlib
import json
import random
import threading
import time
from pathlib import Path
from typing import Any

from streams.faust_app import TABLE_OPTIONS
from streams.feed import Feed
from streams.log import LogReader, LogRecord, LogWriter, open_reader, open_writer

ROWS = 20
REPORT_EVERY = 20


def fold(before: str, value: bytes | None) -> str:
    """The hash after one more value."""
    return hashlib.sha256(before.encode() + (value or b"")).hexdigest()


def last_output(reader: LogReader) -> dict[str, Any]:
    """The newest output, or what stands before the first."""
    end = reader.end_offset("decisions")
    if end == 0:
        return {"offset": -1, "hash": ""}
    found: dict[str, Any] = json.loads(reader.read("decisions", end - 1, 1)[0].value or b"")
    return found


def append_inputs(writer: LogWriter, reader: LogReader, count: int) -> None:
    """Append numbered records in bursts until there are `count`."""
    number = reader.end_offset("pods")
    while number < count:
        burst = min(random.randint(1, 20), count - number)
        writer.append_many([("pods", None, b"%d" % (number + i)) for i in range(burst)])
        number += burst
        time.sleep(0.005)


async def run(url: str, datadir: Path, table: bool, count: int, feed_count: int) -> None:
    reader, writer = open_reader_after(url), open_writer(url)
    state = last_output(reader)
    rows: Any = None
    done: list[asyncio.Task[None]] = []

    async def on_records(topic: str, records: list[LogRecord]) -> None:
        for record in records:
            if rows is not None:
                rows[f"row{record.offset % ROWS}"] = record.offset
            if record.offset > state["offset"]:
                state["offset"], state["hash"] = record.offset, fold(state["hash"], record.value)
                output = json.dumps(state).encode()
                await asyncio.to_thread(writer.append, "decisions", None, output)
                if record.offset % REPORT_EVERY == 0:
                    print(record.offset, flush=True)
        if rows is not None:
            rows["next"] = records[-1].offset + 1
        await stop_when_done()

    async def stop_when_done() -> None:
        if state["offset"] + 1 == count == feed.next_offsets()["pods"]:
            if rows is not None:
                print(json.dumps(dict(rows.items())))
            await feed.stop()

    async def go_on_where_the_table_is() -> None:
        if rows is not None:
            feed.reposition("pods", min(rows.get("next") or 0, state["offset"] + 1))
        done.append(asyncio.create_task(stop_when_done()))

    feed = Feed(
        url,
        "role",
        {"pods": state["offset"] + 1},
        on_records,
        on_ready=go_on_where_the_table_is,
        datadir=datadir,
    )
    if table:
        rows = feed.app.Table(
            "rows", key_type=str, value_type=int, partitions=1, options=dict(TABLE_OPTIONS)
        )
    if feed_count:
        threading.Thread(
            target=append_inputs, args=(writer, open_reader(url), feed_count), daemon=True
        ).start()
    await feed.run()
    writer.close()
    reader.close()


def open_reader_after(url: str) -> LogReader:
    """A reader of a log that this process may be the first to make."""
    open_writer(url).close()
    return open_reader(url)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("url")
    parser.add_argument("datadir", type=Path)
    parser.add_argument("--table", action="store_true")
    parser.add_argument("--count", type=int, required=True)
    parser.add_argument("--feed", type=int, default=0)
    options = parser.parse_args()
    asyncio.run(run(options.url, options.datadir, options.table, options.count, options.feed))


if __name__ == "__main__":
    main()
