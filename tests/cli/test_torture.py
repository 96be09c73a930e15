"""`interlock torture`, as a user runs it."""

import json

from tests.support.house import House, is_running

NOBODY = 2**22 + 1  # no Linux numbers its processes that high


def test_a_run_is_judged_again_from_its_history(house: House) -> None:
    status, output, errors = house.run(
        "torture", "--procs=2", "--secs=1", "--seed=5", "--kill", "--every=0.3", "--history=run", "--markdown=page.md"
    )
    assert (status, output.splitlines()[0]) == (0, "seed: 5"), output + errors
    assert "0 violations" in output
    assert "| kill |" in (house.folder / "page.md").read_text()
    history = house.folder / "run" / "history.jsonl"
    records = [json.loads(line) for line in history.read_text().splitlines()]
    assert not any(is_running(record["pid"]) for record in records if record["e"] == "start")
    assert house.run("torture", f"--judge={history}")[:2] == (0, "\n".join(output.splitlines()[2:]) + "\n")
    with history.open("a") as more:  # a fence of a holder that was there before
        fence = next(record for record in records if record["e"] == "ok" and len(record["fences"]) == 1)
        more.write(json.dumps({**fence, "e": "invoke", "op": -1, **like(records, fence), "t": 1e9}) + "\n")
        more.write(json.dumps({**fence, "op": -1, "ids": ["another"], "t": 1e9 + 1}) + "\n")
    status, output, _ = house.run("torture", f"--judge={history}")
    assert status == 70
    assert "fence repeated" in output


def like(records: list[dict[str, object]], granted: dict[str, object]) -> dict[str, object]:
    """Return what the acquire of a grant asked for."""
    asked = next(
        each for each in records if (each["e"], each["p"], each.get("op")) == ("invoke", granted["p"], granted["op"])
    )
    return {key: asked[key] for key in ("names", "kind", "units", "capacity", "timeout", "ttl")}


def test_a_fault_that_the_store_can_not_have_is_refused(house: House) -> None:
    status, _, errors = house.run("torture", "--pause")
    assert status == 64
    assert "can't make pause" in errors
    status, _, errors = house.run("torture", "--judge=nowhere")
    assert status == 64
    assert "nowhere" in errors


def test_a_server_that_can_not_be_struck_is_no_success(house: House) -> None:
    status, _, errors = house.run("torture", "--secs=1", "--pause", "--every=0.1", f"--server-pid={NOBODY}")
    assert status == 75
    assert "pause was not made: ProcessLookupError" in errors
