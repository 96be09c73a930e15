"""Spans and metrics of locks, in OpenTelemetry's SDK and in a scrape of Prometheus."""

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

import interlock
from interlock.api.connect import open_store
from interlock.client.events import GLOBAL_LISTENERS, Event
from interlock.otel import instrument
from interlock.testing.faults import Failing
from interlock.testing.waiting import RENEWED, eventually, until_renewed
from tests.support.stores import ROWS

ETCD = next(row for row in ROWS if row.name == "etcd")


class Seen:
    """The exported data of one instrumentation."""

    def __init__(self, **how: Any) -> None:
        self._exporter = InMemorySpanExporter()
        self.tracers = TracerProvider(shutdown_on_exit=False)
        self.tracers.add_span_processor(SimpleSpanProcessor(self._exporter))
        self._reader = InMemoryMetricReader()
        self.meters = MeterProvider([self._reader], shutdown_on_exit=False)
        self.stop = instrument(tracer_provider=self.tracers, meter_provider=self.meters, **how)

    def spans(self, name: str) -> list[Any]:
        """The spans of that name that have ended."""
        return [span for span in self._exporter.get_finished_spans() if span.name == f"interlock {name}"]

    def points(self, name: str) -> dict[tuple[Any, ...], float]:
        """The figures of a metric by the values of their attributes; the counts of a histogram."""
        data = self._reader.get_metrics_data()
        metrics = [] if data is None else data.resource_metrics[0].scope_metrics[0].metrics
        found = [point for each in metrics if each.name == f"interlock.{name}" for point in each.data.data_points]
        counts = (getattr(point, "count", getattr(point, "value", None)) for point in found)
        return dict(zip((tuple(point.attributes.values()) for point in found), counts, strict=True))


@pytest.fixture
def seen() -> Iterator[Seen]:
    made = Seen()
    yield made
    made.stop()
    assert not GLOBAL_LISTENERS


def wait_behind(locks: interlock.Locks, name: str, **how: Any) -> tuple[Any, threading.Thread]:
    """Hold a lock; return the grant, and a thread that waits for it and then releases it."""
    grant = locks.lock(name).acquire()
    told: list[Event] = []
    stop = interlock.subscribe(told.append)  # called after the instrumentation

    def work() -> None:
        second = locks.lock(name, **how).acquire()
        assert second is not None
        second.release()

    thread = threading.Thread(target=work)
    thread.start()
    eventually(lambda: [event for event in told if event.kind == "queued"])
    stop()
    return grant, thread


def test_a_wait_and_a_hold_are_spans_within_that_of_the_program(seen: Seen) -> None:
    async def story() -> None:
        async with interlock.aconnect("memory://otel-spans") as locks:
            first = await locks.lock("book:1").acquire()
            tracer = seen.tracers.get_tracer("shop")

            async def work() -> None:
                with tracer.start_as_current_span("order"):
                    async with locks.lock("book:1", label="an order"):
                        pass

            task = asyncio.create_task(work())
            while len(await locks.claims("book:1")) < 2:  # noqa: ASYNC110 - the store has no event to wait for
                await asyncio.sleep(0.001)
            assert first is not None
            await first.release()
            await task

    asyncio.run(story())
    (wait,), (alone, hold) = seen.spans("wait"), seen.spans("hold")
    (order,) = [span for span in seen._exporter.get_finished_spans() if span.name == "order"]
    assert wait.parent.span_id == hold.parent.span_id == order.context.span_id
    assert alone.parent is None
    assert wait.start_time >= order.start_time
    assert wait.end_time <= hold.start_time <= hold.end_time <= order.end_time
    assert dict(hold.attributes) == {
        "interlock.name": "book:1",
        "interlock.claim": wait.attributes["interlock.claim"],
        "interlock.label": "an order",
        "interlock.fence": hold.attributes["interlock.fence"],
        "interlock.outcome": "released",
    }
    assert hold.attributes["interlock.fence"] > alone.attributes["interlock.fence"]
    assert wait.attributes["interlock.outcome"] == "acquired"


def test_waits_holds_and_waiters_are_counted(seen: Seen) -> None:
    with interlock.connect("memory://otel-counted") as locks:
        grant, thread = wait_behind(locks, "book")
        assert seen.points("waiters") == {(): 1}
        assert locks.lock("book").acquire(timeout=0.02) is None
        grant.release()
        thread.join()
    assert seen.points("waiters") == {(): 0}
    assert seen.points("wait.duration") == {("acquired",): 2, ("timed_out",): 1}
    assert seen.points("hold.duration") == {("released",): 2}
    assert seen.points("losses") == {}


def test_a_waiter_that_is_evicted_is_not_counted_twice(seen: Seen) -> None:
    with interlock.connect("memory://otel-evicted") as locks:
        grant, thread = wait_behind(locks, "book", ttl=RENEWED)
        (first,) = [view.id for view in locks.claims("book") if view.state == "pending"]
        assert locks.evict("book", first) == 1
        eventually(lambda: [view for view in locks.claims("book") if view.state == "pending" and view.id != first])
        eventually(lambda: seen.points("waiters") == {(): 1})
        grant.release()
        thread.join()
    assert seen.points("waiters") == {(): 0}
    assert seen.points("evictions") == {(): 1}


def test_losses_and_failed_renewals_are_counted_and_in_the_span(seen: Seen) -> None:
    store = Failing(open_store("memory://otel-lost"))
    with interlock.Locks(store) as locks:
        store.broken.add("renew")
        grant = locks.lock("book", ttl=RENEWED).acquire()
        assert grant is not None
        eventually(lambda: seen.points("renewal.failures").get((), 0) >= 1)
        eventually(lambda: seen.points("losses") == {(): 1})
        (hold,) = eventually(lambda: seen.spans("hold"))
    assert hold.status.status_code is StatusCode.ERROR
    assert "lease expired" in hold.status.description
    assert hold.events[0].name == "renewal failed"
    assert seen.points("hold.duration") == {("lost",): 1}


def test_one_connection_with_attributes_that_the_program_makes() -> None:
    def kind(event: Event) -> dict[str, str]:
        return {"kind": event.name.partition(":")[0]}

    with interlock.connect("memory://otel-one") as locks, interlock.connect("memory://otel-one") as other:
        seen = Seen(subscribe=locks.subscribe, attributes=kind)
        for name in ("book:1", "book:2", "loan:1"):
            with locks.lock(name), other.lock(f"{name}, another"):
                pass
        assert seen.points("hold.duration") == {("book", "released"): 2, ("loan", "released"): 1}
        held = locks.lock("book:3").acquire()
        grant, thread = wait_behind(locks, "book:4")
        seen.stop()
        seen.stop()
        assert seen.points("waiters") == {("book",): 0}
        assert len(seen.spans("hold")) == 5  # the last two were cut short
        grant.release()
        thread.join()
        assert held is not None
        held.release()
        assert len(seen.spans("hold")) == 5


def test_a_forked_child_counts_nothing_of_its_parent(seen: Seen) -> None:
    with interlock.connect("memory://otel-fork") as locks:
        grant, thread = wait_behind(locks, "book")
        child = os.fork()
        if child == 0:
            try:
                with interlock.connect("memory://otel-child") as mine, mine.lock("loan"):
                    pass
                os._exit(0 if seen.points("waiters") == {(): 0} and len(seen.spans("hold")) == 1 else 1)
            finally:
                os._exit(2)
        assert os.waitpid(child, 0)[1] == 0
        assert seen.points("waiters") == {(): 1}
        grant.release()
        thread.join()


def test_without_the_extra_it_says_what_to_install() -> None:
    program = "import sys; sys.modules['opentelemetry'] = None; import interlock; import interlock.otel"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert 'pip install ".[otel]"' in done.stderr


def test_what_can_not_be_called_is_refused() -> None:
    with pytest.raises(interlock.InvalidArgument, match="attributes"):
        instrument(attributes={"kind": "book"})  # type: ignore[arg-type]


@pytest.fixture
def requests() -> Iterator[InMemorySpanExporter]:
    """The spans that instrumentation makes of the requests of httpx."""
    httpx = pytest.importorskip("opentelemetry.instrumentation.httpx")
    exporter, tracers = InMemorySpanExporter(), TracerProvider(shutdown_on_exit=False)
    tracers.add_span_processor(SimpleSpanProcessor(exporter))
    instrumentor = httpx.HTTPXClientInstrumentor()
    instrumentor.instrument(tracer_provider=tracers)
    yield exporter
    instrumentor.uninstrument()


def _paths(exporter: InMemorySpanExporter) -> list[str]:
    shown = [dict(span.attributes or {}) for span in exporter.get_finished_spans()]
    return [str(each.get("url.full") or each.get("http.url")).rpartition("/v3/")[2] for each in shown]


def test_renewals_by_threads_make_no_span(requests: InMemorySpanExporter, tmp_path: Path) -> None:
    with interlock.connect(ETCD.place(tmp_path).url) as locks:
        grant = locks.lock("a", ttl=2).acquire()
        assert grant is not None
        until_renewed(grant, 2)
        assert "kv/txn" in _paths(requests)  # the caller's own requests are in its trace
        assert "lease/keepalive" not in _paths(requests)


def test_renewals_by_tasks_make_no_span(requests: InMemorySpanExporter, tmp_path: Path) -> None:
    async def main() -> None:
        async with interlock.aconnect(ETCD.place(tmp_path).url) as locks:
            grant = await locks.lock("a", ttl=2).acquire()
            await asyncio.to_thread(until_renewed, grant, 2)
            assert "kv/txn" in _paths(requests)
            assert "lease/keepalive" not in _paths(requests)

    asyncio.run(main())
