"""Faults between a lock and DynamoDB: lost, late and wrong replies, crashes, and what a table must be."""

import signal
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import uuid4

import pytest

import interlock
from interlock.core.errors import InvalidArgument, StoreError
from interlock.core.failures import Denied
from interlock.testing.other_process import Remote
from interlock.testing.waiting import eventually
from tests.dynamodb.conftest import Answer, Front, refusal
from tests.servers import Proxy, need
from tests.servers.dynamo import DynaliteServer


def through(proxy: Proxy, server: DynaliteServer, url: str) -> str:
    return url.replace(f"{server.host}:{server.port}", f"{proxy.host}:{proxy.port}")


def test_a_claim_of_a_killed_process_ends_for_single_tries_too(url: str) -> None:
    remote = Remote(url)
    remote.do("grant = locks.lock('a', ttl=1).acquire()")
    remote.kill()
    with interlock.connect(url) as locks:
        assert locks.lock("a").acquire(timeout=0) is None
        eventually(lambda: locks.lock("a").acquire(timeout=0), within=10)
    remote.close()


def test_a_write_whose_answer_is_lost_is_done_once(server: DynaliteServer, url: str) -> None:
    with Proxy(server.host, server.port) as proxy, interlock.connect(through(proxy, server, url)) as locks:
        locks.lock("a").acquire().release()
        proxy.cut_after_request(b"UpdateItem")
        grant = locks.lock("a").acquire(timeout=20)
        assert [view.id for view in locks.claims("a")] == [grant.id]
        proxy.cut_after_request(b"UpdateItem")
        assert grant.release() is True
        assert locks.claims("a") == []


@pytest.mark.parametrize("used", [True, False])
def test_a_write_that_arrives_late_is_refused(server: DynaliteServer, url: str, used: bool) -> None:
    with (
        Proxy(server.host, server.port) as proxy,
        interlock.connect(through(proxy, server, url) + "&timeout=1") as late,
        interlock.connect(url) as others,
    ):
        late.lock("a" if used else "b").acquire().release()
        proxy.catch(b"UpdateItem", "hold")
        with ThreadPoolExecutor() as pool:
            trying = pool.submit(late.lock("a").acquire, timeout=0)
            eventually(lambda: proxy.has_caught)
            grant = others.lock("a").acquire(timeout=20)
            outcome = trying.exception(30) or trying.result()
        proxy.pass_on()
        late.lock("b").acquire(timeout=20).release()  # after the late write, for which the server has one queue
        assert outcome is None or isinstance(outcome, StoreError)
        assert [view.id for view in others.claims("a")] == [grant.id]
        assert grant.release() is True


def test_a_server_that_is_cut_off_is_waited_for(server: DynaliteServer, url: str) -> None:
    with Proxy(server.host, server.port) as proxy, interlock.connect(through(proxy, server, url)) as locks:
        locks.lock("a").acquire().release()
        proxy.refuse()
        with pytest.raises(StoreError):
            locks.lock("a").acquire(timeout=0)
        with ThreadPoolExecutor() as pool:
            waiting = pool.submit(locks.lock("a").acquire, timeout=30)
            proxy.restore()
            assert waiting.result(30).held


def test_a_restarted_server_still_has_the_claims() -> None:
    need("dynalite")
    with DynaliteServer() as server, interlock.connect(server.at("locks")) as locks:
        grant = locks.lock("a").acquire()
        server.restart()
        assert [view.id for view in locks.claims("a")] == [grant.id]
        assert grant.release() is True


def test_a_refusal_of_a_write_that_a_proxy_has_repeated_is_not_believed(front: Front, table: str) -> None:
    def twice(request: Mapping[str, Any], forward: Callable[[], Answer]) -> Answer:
        assert forward()[0] == 200
        new = request["ExpressionAttributeValues"][":nonce"]
        return refusal("ConditionalCheckFailedException", Item={"k": {"S": "/a"}, "nonce": new})

    with interlock.connect(front.at(table)) as locks:
        front.instead["UpdateItem"] = twice
        grant = locks.lock("a").acquire(timeout=0)
        assert grant is not None
        assert front.requests["UpdateItem"] == 1
        assert grant.release() is True
        assert locks.claims("a") == []


def test_a_write_with_an_internal_error_may_have_been_done(front: Front, table: str) -> None:
    def fails(request: object, forward: Callable[[], Answer]) -> Answer:
        del front.instead["UpdateItem"]
        forward()
        return 500, refusal("InternalServerError")[1]

    with interlock.connect(front.at(table)) as locks:
        front.instead["UpdateItem"] = fails
        grant = locks.lock("a").acquire(timeout=20)
        assert [view.id for view in locks.claims("a")] == [grant.id]
        assert grant.release() is True


THROTTLED = "ProvisionedThroughputExceededException"


def test_a_throttled_request_is_repeated(front: Front, table: str) -> None:
    refusals = [refusal(THROTTLED)] * 3
    with interlock.connect(front.at(table)) as locks:
        front.instead["UpdateItem"] = lambda request, forward: refusals.pop() if refusals else forward()
        assert locks.lock("a").acquire(timeout=0) is not None
        assert front.requests["UpdateItem"] == 4


def test_a_table_that_stays_throttled_is_an_error_that_says_so(front: Front, table: str) -> None:
    with interlock.connect(front.at(table) + "&timeout=0.2") as locks:
        front.instead["UpdateItem"] = lambda request, forward: refusal(THROTTLED)
        with pytest.raises(StoreError, match=THROTTLED):
            locks.lock("a").acquire(timeout=0)
        assert front.requests["UpdateItem"] < 10


def test_a_missing_table_is_made_as_the_docs_say(front: Front) -> None:
    front.instead["UpdateTimeToLive"] = lambda request, forward: (200, {"TimeToLiveSpecification": {}})
    with interlock.connect(front.at("made")) as locks, locks.lock("a"):
        assert front.bodies["CreateTable"]["BillingMode"] == "PAY_PER_REQUEST"
        assert front.bodies["UpdateTimeToLive"]["TimeToLiveSpecification"]["AttributeName"] == "expires"
        assert front.requests["CreateTable"] == front.requests["UpdateTimeToLive"] == 1
        assert front.bodies["GetItem"]["ConsistentRead"] is True


def test_a_missing_table_that_must_not_be_made_is_an_error(server: DynaliteServer) -> None:
    with interlock.connect(server.at("absent") + "&create=false") as locks:
        with pytest.raises(StoreError, match=r"does not exist\. Create it"):
            locks.lock("a").acquire(timeout=5)


def test_a_table_that_somebody_else_makes_is_waited_for(front: Front) -> None:
    def taken(request: object, forward: Callable[[], Answer]) -> Answer:
        forward()  # of the other one
        return refusal("ResourceInUseException")

    front.instead["CreateTable"] = taken
    with interlock.connect(front.at(uuid4().hex)) as locks, locks.lock("a"):
        assert front.requests["CreateTable"] == 1
        assert front.requests["UpdateTimeToLive"] == 0


def test_a_table_without_the_right_to_set_its_expiry_works(front: Front) -> None:
    front.instead["UpdateTimeToLive"] = lambda request, forward: refusal("AccessDeniedException")
    with interlock.connect(front.at(uuid4().hex)) as locks:
        assert locks.lock("a").acquire(timeout=0) is not None


def test_a_table_that_was_deleted_is_looked_for_again(front: Front, table: str) -> None:
    with interlock.connect(front.at(table)) as locks:
        locks.lock("a").acquire().release()
        gone = [refusal("ResourceNotFoundException")]
        front.instead["UpdateItem"] = lambda request, forward: gone.pop() if gone else forward()
        assert locks.lock("a").acquire(timeout=0) is not None
        assert front.requests["DescribeTable"] == 2


def test_a_read_on_a_connection_that_ended_is_repeated(server: DynaliteServer, url: str) -> None:
    with Proxy(server.host, server.port) as proxy, interlock.connect(through(proxy, server, url)) as locks:
        grant = locks.lock("a").acquire()
        proxy.cut_after_request(b"GetItem")
        assert [view.id for view in locks.claims("a")] == [grant.id]
        assert proxy.cuts == 1


GLOBAL = {"Replicas": [{"RegionName": "eu-west-1"}]}


@pytest.mark.parametrize(
    ("about", "says"),
    [
        (GLOBAL, "global table"),
        ({"GlobalTableVersion": "2017.11.29"}, "global table"),
        ({"KeySchema": [{"AttributeName": "id", "KeyType": "HASH"}]}, "different key schema"),
    ],
)
def test_an_unsuitable_table_is_refused(front: Front, table: str, about: Mapping[str, object], says: str) -> None:
    def described(request: object, forward: Callable[[], Answer]) -> Answer:
        status, answer = forward()
        return status, {"Table": {**answer["Table"], **about}}  # type: ignore[dict-item]

    front.instead["DescribeTable"] = described
    with interlock.connect(front.at(table)) as locks, pytest.raises(StoreError, match=says):
        locks.lock("a").acquire(timeout=5)


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (refusal("UnrecognizedClientException", "The security token is invalid"), "AWS_ACCESS_KEY_ID"),
        (refusal("AccessDeniedException", "not authorized to perform dynamodb:UpdateItem"), "dynamodb:UpdateItem"),
        (refusal("InvalidSignatureException", "Signature expired: 2026"), "Set the clock"),
    ],
)
def test_an_error_about_credentials_ends_an_acquire_and_says_why(
    front: Front, table: str, answer: Answer, says: str
) -> None:
    with interlock.connect(front.at(table)) as locks:
        front.instead["UpdateItem"] = lambda request, forward: answer
        with pytest.raises(Denied, match=says) as caught:
            locks.lock("a").acquire()
    assert "secret" not in str(caught.value)


def test_without_credentials_the_error_says_where_to_put_them(
    server: DynaliteServer, table: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    for name in ("AWS_PROFILE", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    with interlock.connect(server.at(table).replace("key:secret@", "")) as locks:
        with pytest.raises(Denied, match="Set AWS_PROFILE"):
            locks.lock("a").acquire()


@pytest.mark.parametrize("option", ["?profile=none-of-that-name", "?region=eu central", "?endpoint=nowhere", ""])
def test_settings_that_aws_does_not_take_are_an_error(option: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nonexistent")
    with pytest.raises(InvalidArgument) as caught:
        interlock.connect(f"dynamodb://key:5ecret@locks{option}")
    assert "5ecret" not in str(caught.value)


@pytest.mark.parametrize(
    "wrong",
    [
        "dynamodb://", "dynamodb://ab", "dynamodb://localhost:8000", "dynamodb://table/path", "dynamodb://key@table",
        "dynamodb://table?x=1", "dynamodb://table?create=yes", "dynamodb://key:5ecret@ta/ble",
    ],
)  # fmt: skip
def test_what_a_url_does_not_say_is_refused(wrong: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        interlock.connect(wrong)
    assert "5ecret" not in str(caught.value)


def test_a_line_that_is_too_large_for_an_item_is_an_error_that_says_so() -> None:
    need("dynalite")
    with DynaliteServer(largest=1) as server, interlock.connect(server.at("locks")) as locks:
        grants = [locks.rwlock("a", label="x" * 200).read().acquire() for _ in range(2)]
        with pytest.raises(StoreError, match="The 3 claims of '/a' need more than the 400 KB"):
            locks.rwlock("a", label="x" * 200).read().acquire()
        assert all(grant.release() for grant in grants)
        assert locks.claims("a") == []


def test_an_item_expires_only_without_claims(front: Front, table: str) -> None:
    def expires() -> int | None:
        body = front.bodies["UpdateItem"]
        assert ("REMOVE #expires" in body["UpdateExpression"]) != (":expires" in body["ExpressionAttributeValues"])
        value = body["ExpressionAttributeValues"].get(":expires")
        return None if value is None else int(value["N"])

    with interlock.connect(front.at(table)) as locks:
        grant = locks.lock("a").acquire()
        assert expires() is None
        grant.release()
        assert expires() == pytest.approx(time.time() + 86_400, abs=5)
        locks.once("b", keep=1000).run(lambda: 1)
        assert expires() == pytest.approx(time.time() + 1000 + 86_400, abs=5)
        assert [view.name for view in locks.claims()] == ["b"]  # the expired name is not even read


def test_fences_increase_over_the_deletion_of_an_item(server: DynaliteServer, table: str) -> None:
    with interlock.connect(server.at(table)) as locks:
        before = locks.lock("a").acquire()
        before.release()
        server.delete(table, "/a")  # as time to live does
        with locks.lock("a") as after:
            assert after.fence > before.fence


def test_names_of_more_than_one_page_are_listed(url: str) -> None:
    with interlock.connect(url) as locks:
        names = [*(f"run {number}" for number in range(18)), "x" * 1000, "ü" * 1000]
        for name in names:
            locks.once(name, keep=1000).run(lambda: "x" * 65_000)
        assert sorted(view.name for view in locks.claims()) == sorted(names)


def test_a_signal_handler_within_a_request_gets_an_error(server: DynaliteServer, url: str) -> None:
    found: list[BaseException] = []
    with Proxy(server.host, server.port) as proxy, interlock.connect(through(proxy, server, url)) as locks:
        locks.lock("a").acquire().release()

        def handler(*args: object) -> None:
            try:
                locks.lock("b").acquire(timeout=0)
            except StoreError as error:
                found.append(error)
            finally:
                proxy.restore()

        before = signal.signal(signal.SIGALRM, handler)
        try:
            proxy.delay(1.0)
            signal.setitimer(signal.ITIMER_REAL, 0.3)
            with locks.lock("a"):
                pass
        finally:
            signal.signal(signal.SIGALRM, before)
    assert ["interrupted a step" in str(error) for error in found] == [True]


def test_doctor_looks_whether_a_stale_write_is_refused(url: str) -> None:
    with interlock.connect(url) as locks:
        found = {check.name: check.status for check in locks.doctor()}
    assert found["conditional writes"] == found["clock"] == found["round trip"] == "ok"
    assert found["unused names"] == "warn"  # dynalite has no time to live


def test_one_of_many_wins_the_race_on_dynalite(url: str) -> None:
    with interlock.connect(url) as locks:
        (check,) = locks._client.store.race(16, 30)
    assert "one winner in 30, none in 0, several in 0" in check.detail


def test_a_server_that_writes_stale_items_is_found_out(front: Front, table: str) -> None:
    def careless(request: Mapping[str, Any], forward: Callable[[], Answer]) -> Answer:
        status, answer = forward()
        return 200, answer if status == 200 else {}

    front.instead["UpdateItem"] = careless
    with interlock.connect(front.at(table)) as locks:
        found = {check.name: check.status for check in locks.doctor()}
        assert found["conditional writes"] == "fail"
        assert locks._client.store.race(4, 4)[0].status == "fail"
