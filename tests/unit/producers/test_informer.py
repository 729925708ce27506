"""Informers against an API server in memory: syncs, resumes, gaps, resets, missing kinds, failures."""

import asyncio
from typing import Any

import pytest

from producers.informer import Informer, Informers, Pace
from producers.kube import Expired
from schemas.errors import Unavailable
from schemas.observations import (
    KindAbsent,
    NodeObserved,
    ObjectGone,
    Observed,
    StillThere,
    SyncFinished,
    SyncStarted,
)
from tests.unit.producers.informer_scene import (
    FAST,
    GIVE_UP_S,
    Log,
    Server,
    play,
    quiet,
    said,
    synced,
    until,
)


def test_the_first_sync_is_cold_paged_and_of_one_epoch() -> None:
    """Start with the list's version, every object of every page, then the finish, in this order."""

    async def scene(server: Server, log: Log, informer: Informer) -> None:
        for name in "abcde":
            server.put(name)
        first = await synced(log)
        started, *objects, finished = first
        assert isinstance(started, SyncStarted)
        assert isinstance(finished, SyncFinished)
        assert ("nodes", "me", 15, True) == (
            started.resource,
            started.producer,
            started.list_rv,
            started.cold,
        )
        assert (started.epoch, 15) == (finished.epoch, finished.list_rv)
        assert [("NodeObserved", name) for name in "abcde"] == said(objects)
        assert {started.epoch} == {item.epoch for item in objects}  # type: ignore[attr-defined]
        assert [1, 2, 2, 1, 1] == [len(call) for call in log.calls]

    play(scene)


def test_a_page_is_observed_and_published_in_slices() -> None:
    """A page of 500 objects at once would keep the event loop from the Lease; a call takes 100."""
    calls: list[int] = []

    class Page(Server):
        async def list_page(self, resource: str, limit: int, continue_: str) -> dict[str, Any]:
            return await super().list_page(resource, 500, continue_)

    async def stage() -> None:
        server, log = Page(), Log()
        for number in range(250):
            server.put(f"n{number}")
        informer = asyncio.create_task(
            Informer("nodes", server, log, producer="me", pace=FAST).run()
        )
        async with asyncio.timeout(GIVE_UP_S):
            said_of = said(await synced(log))
        calls.extend(len(call) for call in log.calls)
        informer.cancel()
        assert 250 == [kind for kind, _ in said_of].count("NodeObserved")

    asyncio.run(stage())
    assert [1, 100, 100, 50, 1] == calls


def test_a_list_says_what_was_heard_before_it_was_asked_for() -> None:
    """What is decided while the API server answers is no part of it."""
    heard = [7]

    class Slow(Server):
        async def list_page(self, resource: str, limit: int, continue_: str) -> dict[str, Any]:
            heard.append(8)
            return await super().list_page(resource, limit, continue_)

    async def stage() -> list[Observed]:
        server, log = Slow(), Log()
        informer = Informer("nodes", server, log, producer="me", pace=FAST, heard=lambda: heard[-1])
        running = asyncio.create_task(informer.run())
        async with asyncio.timeout(GIVE_UP_S):
            found = await synced(log)
        running.cancel()
        return found

    started = asyncio.run(stage())[0]
    assert isinstance(started, SyncStarted)
    assert 7 == started.heard


def test_a_change_is_published_and_a_heartbeat_is_not() -> None:
    """Only a changed projection is published, without an epoch; deletions carry their version."""

    async def scene(server: Server, log: Log, informer: Informer) -> None:
        server.put("a")
        await synced(log)
        server.touch("a")
        server.put("a", zone="z")
        server.touch("a")
        server.put("b")
        server.delete("b")
        deleted_rv = server.version
        found = await quiet(server, log)
        assert [("NodeObserved", "a"), ("NodeObserved", "b"), ("ObjectGone", "b")] == said(found)
        assert isinstance(found[0], NodeObserved)
        assert (None, {"zone": "z"}) == (found[0].epoch, found[0].labels)
        assert found[2] == ObjectGone(resource="nodes", uid="uid-b", rv=deleted_rv, name="b")

    play(scene)


def test_duplicate_events_publish_nothing_again() -> None:
    """An event that comes twice, or again after a resume, changes nothing."""

    async def scene(server: Server, log: Log, informer: Informer) -> None:
        server.put("a")
        await synced(log)
        server.put("a", zone="z")
        again = {"type": "MODIFIED", "object": server.objects["a"]}
        server.tell(again)
        server.tell(again)
        assert [("NodeObserved", "a")] == said(await quiet(server, log))

    play(scene)


def test_a_change_and_its_way_back_are_both_published() -> None:
    """Within one burst each change counts against the one before, not against the burst's start."""

    async def scene(server: Server, log: Log, informer: Informer) -> None:
        server.put("a", zone="x")
        await synced(log)
        server.put("a", zone="y")
        server.put("a", zone="x")
        found = await quiet(server, log)
        assert ["y", "x"] == [item.labels["zone"] for item in found]  # type: ignore[attr-defined]

    play(scene)


def test_a_lost_watch_is_resumed_where_it_was() -> None:
    """After a plain end nothing is listed anew and nothing between is missed."""

    async def scene(server: Server, log: Log, informer: Informer) -> None:
        server.put("a")
        await synced(log)
        server.put("b")
        await quiet(server, log)
        version = server.version
        server.hang_up()
        server.put("c")
        server.delete("b")
        assert [("NodeObserved", "c"), ("ObjectGone", "b")] == said(await quiet(server, log))
        assert (1, str(version)) == (server.lists, server.watched_from[1])

    play(scene)


def test_a_bookmark_moves_the_version_from_which_a_watch_is_resumed() -> None:
    """A quiet resource survives compaction: its bookmark is newer."""

    async def scene(server: Server, log: Log, informer: Informer) -> None:
        server.put("a")
        await synced(log)
        await until(lambda: len(server.watched_from) == 1)
        server.bookmark()
        await asyncio.sleep(0.01)
        server.compact()
        server.hang_up()
        await until(lambda: len(server.watched_from) > 1)
        assert [str(server.version)] == server.watched_from[1:2]
        assert (1, []) == (server.lists, await quiet(server, log))

    play(scene)


def test_an_expired_version_starts_a_new_sync_with_deletes_in_the_gap() -> None:
    """After 410 unchanged objects are only named, changed ones published, lost ones not named."""

    async def scene(server: Server, log: Log, informer: Informer) -> None:
        for name in "abc":
            server.put(name)
        first = await synced(log)
        server.events.clear()  # these changes are never told
        server._watches += 1
        server.objects.pop("b")
        server.put("c", zone="z")
        server.put("d")
        server.touch("a")
        server.compact()
        server.events.clear()
        server.hang_up()
        started, *objects, finished = await synced(log)
        assert [("StillThere", "uid-a"), ("NodeObserved", "c"), ("NodeObserved", "d")] == said(
            objects
        )
        assert isinstance(started, SyncStarted)
        assert isinstance(first[0], SyncStarted)
        assert started.epoch != first[0].epoch
        assert (False, server.version) == (started.cold, finished.list_rv)  # type: ignore[attr-defined]
        assert objects[0] == StillThere(
            resource="nodes", epoch=started.epoch, uid="uid-a", rv=server.version
        )

    play(scene)


def test_a_list_that_expires_in_the_middle_is_never_finished() -> None:
    """A new epoch lists everything again; the broken one has no finish, and the new one is cold too."""

    async def scene(server: Server, log: Log, informer: Informer) -> None:
        for name in "abcd":
            server.put(name)

        def expire(start: int) -> None:
            if start == 2:
                server.on_page = lambda _start: None
                raise Expired("nodes: HTTP 410: the continue token is too old")

        server.on_page = expire
        found = await synced(log)
        starts = [item for item in found if isinstance(item, SyncStarted)]
        finishes = [item for item in found if isinstance(item, SyncFinished)]
        assert [True, True] == [item.cold for item in starts]
        assert [starts[1].epoch] == [item.epoch for item in finishes]
        again = found[found.index(starts[1]) :]
        assert [
            ("StillThere", "uid-a"),
            ("StillThere", "uid-b"),
            ("NodeObserved", "c"),
            ("NodeObserved", "d"),
        ] == said(again[1:-1])

    play(scene)


def test_pages_of_different_versions_are_not_taken_for_one_list() -> None:
    """A continue token that was answered from another version starts a new list."""

    async def scene(server: Server, log: Log, informer: Informer) -> None:
        for name in "abc":
            server.put(name)
        real = server.list_page

        async def drifting(resource: str, limit: int, continue_: str) -> dict[str, Any]:
            page = await real(resource, limit, continue_)
            if continue_:
                server.list_page = real  # type: ignore[method-assign]
                page["metadata"]["resourceVersion"] = "99"
            return page

        server.list_page = drifting  # type: ignore[method-assign]
        found = await synced(log)
        assert (2, 1) == (
            sum(isinstance(item, SyncStarted) for item in found),
            sum(isinstance(item, SyncFinished) for item in found),
        )

    play(scene)


def test_a_missing_kind_is_reported_once_and_picked_up_when_it_appears() -> None:
    """404 on a list is KindAbsent; when the CRD comes, a cold sync follows; when it goes, again."""

    async def scene(server: Server, log: Log, informer: Informer) -> None:
        absent = KindAbsent(resource="nodes", producer="me")
        server.absent = True
        await until(lambda: absent in log.observations)
        await asyncio.sleep(0.02)
        assert [absent] == log.take()
        server.put("a")
        server.absent = False
        started, *objects, _ = await synced(log)
        assert isinstance(started, SyncStarted)
        assert (True, [("NodeObserved", "a")]) == (started.cold, said(objects))
        server.absent = True
        server.hang_up()
        await until(lambda: absent in log.observations)
        log.take()
        server.absent = False
        started, *objects, _ = await synced(log)
        assert [("NodeObserved", "a")] == said(objects)

    play(scene)


def test_a_requested_resync_lists_again_without_losing_a_change() -> None:
    """The core asks: everything is said whole in a new epoch, and the watch goes on after it."""

    async def scene(server: Server, log: Log, informer: Informer) -> None:
        server.put("a")
        await synced(log)
        informer.resync()
        begun, *objects, _ = await synced(log)
        assert (True, False) == (begun.whole, begun.cold)  # type: ignore[attr-defined]
        assert [("NodeObserved", "a")] == said(objects)
        server.put("b")
        assert [("NodeObserved", "b")] == said(await quiet(server, log))

    play(scene)


def test_a_requested_resync_that_breaks_off_is_done_again() -> None:
    """An unfinished sync is never taken for the one that was asked for."""

    async def scene(server: Server, log: Log, informer: Informer) -> None:
        for name in "abc":
            server.put(name)
        await synced(log)

        def fail(start: int) -> None:
            if start == 2:
                server.on_page = lambda _start: None
                raise Unavailable("connection reset")

        server.on_page = fail
        informer.resync()
        found = await synced(log)
        starts = [item for item in found if isinstance(item, SyncStarted)]
        assert 2 == len(starts)
        assert starts[1].epoch == found[-1].epoch  # type: ignore[attr-defined]

    play(scene)


def test_a_requested_resync_of_a_missing_kind_says_again_that_it_is_missing() -> None:
    """Who asks gets an answer."""

    async def scene(server: Server, log: Log, informer: Informer) -> None:
        server.absent = True
        await until(lambda: len(log.observations) == 1)
        informer.resync()
        await until(lambda: len(log.observations) == 2)
        assert [("KindAbsent", ""), ("KindAbsent", "")] == said(log.take())

    play(scene)


def test_a_history_that_went_back_is_listed_anew() -> None:
    """After a restore of etcd the version is lower: a watch would stay silent, so there is a sync."""

    async def scene(server: Server, log: Log, informer: Informer) -> None:
        server.put("a", zone="old")
        server.put("a", zone="new")
        await synced(log)
        await until(lambda: len(server.watched_from) == 1)
        server.events.clear()
        server.version = 10
        server.put("a", zone="old")
        server.hang_up()
        started, *objects, _ = await synced(log)
        assert isinstance(started, SyncStarted)
        assert (11, False) == (started.list_rv, started.cold)
        assert ["old"] == [item.labels["zone"] for item in objects]  # type: ignore[attr-defined]

    play(scene)


def test_failures_of_the_api_server_are_tried_again() -> None:
    """Errors of list and watch pause and repeat; nothing is lost or said twice."""

    async def scene(server: Server, log: Log, informer: Informer) -> None:
        server.put("a")
        server.failures = [Unavailable("503"), Unavailable("connection refused")]
        assert [("NodeObserved", "a")] == said((await synced(log))[1:-1])
        server.failures = [Unavailable("503"), Unavailable("503"), Unavailable("503")]
        server.hang_up()
        server.put("b")
        assert [("NodeObserved", "b")] == said(await quiet(server, log))
        assert 1 == server.lists

    play(scene)


def test_a_burst_that_the_log_did_not_take_for_sure_is_published_again() -> None:
    """The same observations come again before any later one: the fold drops what it has seen."""

    async def scene(server: Server, log: Log, informer: Informer) -> None:
        server.put("a")
        await synced(log)
        log.failures = 2
        server.put("b")
        await until(lambda: len(log.observations) >= 3)
        server.put("c")
        found = await quiet(server, log)
        assert ["b", "b", "b", "c"] == [name for _, name in said(found)]

    play(scene)


def test_the_finish_of_a_sync_never_precedes_its_objects() -> None:
    """However often the log fails, the finish is published only after all objects were taken."""

    async def scene(server: Server, log: Log, informer: Informer) -> None:
        for name in "abc":
            server.put(name)
        log.failures = 5
        await synced(log)
        assert SyncFinished is type(log.calls[-1][0])
        assert 1 == len(log.calls[-1])
        named = {getattr(item, "name", "") for call in log.calls[:-1] for item in call}
        assert {"a", "b", "c"} <= named

    play(scene)


def test_an_object_that_cannot_be_observed_is_skipped_but_not_forgotten() -> None:
    """Garbage is counted; in a list it stays named, so that what the log knows of it stays."""

    async def scene(server: Server, log: Log, informer: Informer) -> None:
        server.put("a")
        server.put("b")
        await synced(log)
        for name in "ac":
            server.put(name, cpu="garbage")
        server.tell({"type": "DELETED", "object": {"metadata": {}}})
        server.tell({"type": "MODIFIED"})
        server.put("b", zone="z")
        assert [("NodeObserved", "b")] == said(await quiet(server, log))
        assert 4 == informer.rejected
        informer.resync()
        found = [item for item in said((await synced(log))[1:-1]) if "zz-mark" not in item[1]]
        assert [("StillThere", "uid-a"), ("NodeObserved", "b")] == found

    play(scene)


@pytest.mark.parametrize("failures", [0, 1, 5, 1000])
def test_pauses_double_up_to_a_bound_and_are_jittered(failures: int) -> None:
    """A pause lies between half of the doubled minimum and all of it, never above the maximum."""
    pace = Pace(retry_s_min=0.25, retry_s_max=8.0)
    longest = min(8.0, 0.25 * 2**failures) if failures < 1000 else 8.0
    pauses = [pace.delay_s(failures) for _ in range(200)]
    assert longest / 2 <= min(pauses) <= max(pauses) <= longest
    assert len(set(pauses)) > 1


def test_all_resources_run_together_and_end_together() -> None:
    """Each resource has its informer; a fault that none can handle ends them all."""

    class Broken(Server):
        async def list_page(self, resource: str, limit: int, continue_: str) -> dict[str, Any]:
            """Namespaces hit a fault of the program."""
            if resource == "namespaces":
                raise AssertionError("a fault of the program")
            return await super().list_page(resource, limit, continue_)

    async def stage() -> None:
        informers = Informers(
            Broken(), Log(), producer="me", resources=("nodes", "namespaces"), pace=FAST
        )
        informers.resync("nodes")
        informers.resync("unknown")
        async with asyncio.timeout(GIVE_UP_S):
            await informers.run()

    with pytest.raises(ExceptionGroup) as caught:
        asyncio.run(stage())
    assert ["a fault of the program"] == [str(error) for error in caught.value.exceptions]
