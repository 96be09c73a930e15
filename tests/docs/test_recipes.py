"""The recipes do what their pages promise: real workers, servers and crontabs, on private servers."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from itertools import cycle
from pathlib import Path

import httpx
import pytest
import yaml
from redis import Redis

import interlock
from examples.recipes import lifetime
from interlock.testing.waiting import eventually
from tests.docs.pages import ROOT
from tests.servers import RedisServer, need
from tests.support.cli_processes import Process

RECIPES = ROOT / "examples" / "recipes"
CRON = RECIPES / "cron"


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    """A private Valkey."""
    need("valkey")
    with RedisServer() as found:
        yield found


@pytest.fixture
def environment(server: RedisServer, tmp_path: Path) -> dict[str, str]:
    """The environment of workers; the server is empty."""
    with Redis.from_url(server.url) as client:
        client.flushall()
    return {
        **os.environ, "INTERLOCK_URL": server.url, "BROKER": server.url,
        "LEDGER": str(tmp_path / "ledger"), "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'src'}",
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
    }  # fmt: skip


@pytest.fixture
def shop(environment: dict[str, str]) -> Iterator[interlock.Locks]:
    """A connection of the test to the workers' locks."""
    with interlock.connect(environment["INTERLOCK_URL"], namespace="shop") as locks:
        yield locks


def start(environment: dict[str, str], *words: str) -> Process:
    """Start a worker."""
    return Process(
        [sys.executable, *words], env=environment, text=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )  # fmt: skip


def test_celery_skips_comes_again_and_pays_once(environment: dict[str, str], shop: interlock.Locks) -> None:
    worker = start(
        environment, "-m", "celery", "-A", "examples.recipes.celery_once", "worker", "--concurrency=2",
        "--without-mingle", "--without-gossip",
    )  # fmt: skip
    code = """if True:
        import sys
        from examples.recipes.celery_once import change, pay, report
        busy = report.delay("2026-11")
        later = change.delay("ada")
        payments = [pay.delay("7") for _ in range(2)]
        said = [busy.get(timeout=200), sorted(each.get(timeout=200) for each in payments)]
        print(said, later.ready(), flush=True)
        sys.stdin.readline()
        print(report.delay("2026-11").get(timeout=200), later.get(timeout=200))
    """
    client = Process(
        [sys.executable, "-c", code], env=environment, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        with shop.lock("report:2026-11"), shop.lock("customer:ada"):
            assert client.read_line() == "[None, ['done', 'paid before']] False"
        client.say("go on")
        assert client.read_line() == "done done"
    finally:
        client.ended()
        worker.terminate()
        worker.wait(60)
    ledger = Path(environment["LEDGER"]).read_text().split("\n")
    assert sorted(ledger) == sorted(
        ["", *(f"{when} {what}" for what in ("report 2026-11", "change ada", "pay 7") for when in ("begin", "end"))]
    )


def test_rq_skips_what_is_done_elsewhere(environment: dict[str, str], shop: interlock.Locks) -> None:
    code = """if True:
        from rq import SimpleWorker, Worker
        from examples.recipes.rq_once import queue, report
        jobs = [queue().enqueue(report, month) for month in ("2026-10", "2026-11")]
        Worker([queue()], connection=queue().connection).work(burst=True, logging_level="ERROR")
        print([job.return_value() for job in jobs])
    """
    with shop.lock("report:2026-11"):
        done = subprocess.run(
            [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=60, check=True
        )
    assert done.stdout == "['done', None]\n"


def test_the_web_recipe_answers_errors_and_has_one_leader(
    environment: dict[str, str], server: RedisServer, shop: interlock.Locks
) -> None:
    ports = []
    workers = []
    for _ in range(2):
        code = (
            "import asyncio, socket, uvicorn\n"
            "from examples.recipes.web import app\n"
            "s = socket.socket(); s.bind(('127.0.0.1', 0)); print(s.getsockname()[1], flush=True)\n"
            "uvicorn.Server(uvicorn.Config(app, log_level='error')).run(sockets=[s])\n"
        )
        worker = Process([sys.executable, "-c", code], env=environment, text=True, stdout=subprocess.PIPE)
        workers.append(worker)
        ports.append(f"http://127.0.0.1:{worker.read_line()}")

    def leaders() -> list[str]:
        return [port for port in ports if httpx.get(f"{port}/health").json()["leader"]]

    try:
        eventually(lambda: all(_answers(port) for port in ports))
        (first,) = eventually(leaders)
        with shop.lock("stock:pen"):
            assert httpx.post(f"{ports[0]}/buy/pen", timeout=10).status_code == 423
        assert httpx.post(f"{ports[0]}/buy/pen").json() == {"left": 2}
        with shop.lock("user:ada"):
            assert httpx.post(f"{ports[0]}/users/ada/checkout").status_code == 423
            assert httpx.post(f"{ports[0]}/users/bob/checkout").json()["fence"] > 0
        events = [httpx.post(f"{port}/webhook", json={"id": "evt_1"}).json() for port in ports]
        assert events == [{"events": 1}] * 2
        assert httpx.post(f"{ports[1]}/webhook", json={"id": "evt_1", "paid": 7}).status_code == 422
        with shop.once("webhook:evt_2", keep=60, payload={"id": "evt_2"}):
            assert httpx.post(f"{ports[0]}/webhook", json={"id": "evt_2"}).status_code == 409
        with httpx.stream("GET", f"{ports[0]}/export") as stream:
            lines = stream.iter_lines()  # kept, because its collection closes the stream
            assert next(lines) == "0"
            assert len(shop.claims("export")) == 1
        eventually(lambda: shop.claims("export") == [])  # the client has left
        with shop.once("order:running", keep=60, payload={"pen": 1}):
            ends = [_order(port, key, order) for port, (key, order, _) in zip(cycle(ports), ORDERS, strict=False)]
        assert ends == [end for _, _, end in ORDERS]
        assert sum(httpx.get(f"{port}/health").json()["orders"] for port in ports) == 2
        workers[ports.index(first)].terminate()  # the lifespan ends, and the leader goes
        (second,) = eventually(lambda: [port for port in ports if port != first and _leads(port)])
        server.pause()
        assert httpx.post(f"{second}/buy/pen", timeout=30).status_code == 503
        server.resume()
        eventually(lambda: _leads(second))
        server.pause()
        workers[ports.index(second)].terminate()  # a leader that can't reach the store ends all the same
        assert workers[ports.index(second)].wait(30) is not None
    finally:
        server.resume()
        for worker in workers:
            worker.terminate()
            worker.communicate(timeout=60)


def _answers(url: str) -> bool:
    try:
        return httpx.get(f"{url}/health").status_code == 200
    except httpx.TransportError:
        return False


def _leads(url: str) -> bool:
    return bool(httpx.get(f"{url}/health").json()["leader"])


ORDERS = [
    (None, {"pen": 1}, (400, "send an Idempotency-Key of at most 100 characters")),
    ("k1", {"pen": 1}, (200, None)),
    ("k1", {"pen": 1}, (200, None)),
    ("k1", {"pen": 2}, (422, "repeat the first request, or use a new key")),
    ("k2", {"pen": 1}, (200, None)),
    ("running", {"pen": 1}, (409, "the first request is still in progress")),
]


def _order(url: str, key: str | None, order: dict[str, int]) -> tuple[int, str | None]:
    """Place an order; return the status, and the detail of an error."""
    answer = httpx.post(f"{url}/orders", json=order, headers={"Idempotency-Key": key} if key else {})
    return answer.status_code, answer.json().get("detail")


def test_pools_of_every_kind_lose_no_update(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "examples.recipes.pool", str(tmp_path)],
        cwd=ROOT, capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    assert done.stdout == "400\n"  # 50 times by 2 workers of 4 kinds


JOB = """
import os, sys, time
device = os.environ["CUDA_VISIBLE_DEVICES"]
until = time.monotonic() + 30
for what in ("begin", "end"):
    with open(os.environ["LEDGER"], "a") as ledger:
        print(what, device, os.getpid(), file=ledger)
    while len({line.split()[1] for line in open(os.environ["LEDGER"])}) < 2 and time.monotonic() < until:
        time.sleep(0.01)  # the first job waits for one on the other device
print(device, "seed", sys.argv[1])
"""


def test_two_joblib_programs_never_share_a_gpu(environment: dict[str, str], tmp_path: Path) -> None:
    environment["GPUS"] = "0,1"
    words = [sys.executable, "-m", "examples.recipes.gpu", sys.executable, "-c", JOB]
    with interlock.connect(environment["INTERLOCK_URL"]) as locks, locks.semaphore("gpu", 2, units=2):
        programs = [
            subprocess.Popen(words, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True) for _ in "ab"
        ]
        eventually(lambda: len(locks.claims("gpu")) == 1 + 2 * 3)
    for program in programs:
        said, _ = program.communicate(timeout=120)
        assert program.returncode == 0
        assert [line.split()[1:] for line in said.splitlines()] == [["seed", str(seed)] for seed in range(6)]
    has: dict[str, str] = {}
    most = 0
    for line in Path(environment["LEDGER"]).read_text().splitlines():
        what, device, pid = line.split()
        assert has.get(device) == (None if what == "begin" else pid)
        if what == "begin":
            has[device] = pid
        else:
            del has[device]
        most = max(most, len(has))
    assert most == 2  # both were used, at the same time


TASKS = {
    "download": 'mkdir -p "$1"; echo downloaded >>"$LEDGER"',
    "unpack": 'echo unpacked >>"$LEDGER"',
    "train": 'gpu=gpu-$CUDA_VISIBLE_DEVICES; mkdir $gpu && sleep 0.3 && rmdir $gpu && echo trained >>"$LEDGER"',
}
"""The programs that the tasks of a cluster start; a second one on the same GPU fails in mkdir."""


def test_tasks_of_a_cluster_download_once_and_never_share_a_gpu(environment: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "locks").mkdir()
    for name, text in TASKS.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    script = str(RECIPES / "cluster" / "array.sbatch")
    environment |= {"HOME": str(tmp_path), "PATH": f"{environment['PATH']}:/usr/bin:/bin"}
    tasks = [
        subprocess.Popen(["bash", script], cwd=tmp_path, env={**environment, "SLURM_ARRAY_TASK_ID": str(number)})
        for number in range(4)
    ]
    assert [task.wait(120) for task in tasks] == [0] * 4
    assert (
        sorted(Path(environment["LEDGER"]).read_text().split()) == ["downloaded"] + ["trained"] * 4 + ["unpacked"] * 4
    )


@pytest.mark.rare
def test_a_notebook_locks_and_awaits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import nbclient
    import nbformat

    monkeypatch.setenv("INTERLOCK_URL", (tmp_path / "locks").as_uri())
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "src"))
    monkeypatch.setenv("JUPYTER_PLATFORM_DIRS", "1")
    notebook = nbformat.read(RECIPES / "notebook.ipynb", as_version=4)
    notebook.cells.append(nbformat.v4.new_code_cell("print(trained, fence > 0)"))
    nbclient.NotebookClient(notebook, timeout=60, resources={"metadata": {"path": str(tmp_path)}}).execute()
    assert notebook.cells[-1].outputs[0].text == "once True\n"


def test_a_connection_is_made_once_and_serves_a_fork(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INTERLOCK_URL", (tmp_path / "locks").as_uri())
    assert not (tmp_path / "locks").exists()  # importing it has touched no store
    with lifetime.locks().lock("parent"):
        first = lifetime.work("one")
        assert lifetime.in_a_child() > 0
        assert lifetime.work("one") > first
    lifetime.locks().close()
    lifetime.locks.cache_clear()


def cron_lines() -> list[tuple[dict[str, str], str]]:
    """Return the commands of the crontab, each with the variables that are set above it."""
    found: list[tuple[dict[str, str], str]] = []
    variables: dict[str, str] = {}
    for line in (CRON / "crontab").read_text().splitlines():
        if line and not line.startswith("#"):
            name, is_variable, value = line.partition("=")
            if is_variable and name.isidentifier():
                variables = {**variables, name: value}
            else:
                found.append((variables, line.split(None, 5)[5]))
    return found


def job(folder: Path, commands: str = "") -> None:
    """Write the program that cron runs."""
    (folder / "job").write_text(f"#!/bin/sh\n{commands}\necho $1 >>done\n")
    (folder / "job").chmod(0o755)


def test_the_lines_for_one_machine_exclude(environment: dict[str, str], tmp_path: Path) -> None:
    job(tmp_path)
    environment["INTERLOCK_URL"] = (tmp_path / "locks").as_uri()  # not /tmp/interlock-UID, which is the tester's own
    (_, mirror), (_, nightly), _ = cron_lines()
    with interlock.connect(environment["INTERLOCK_URL"]) as locks, locks.lock("mirror"):
        assert subprocess.run(["sh", "-c", mirror], cwd=tmp_path, env=environment).returncode == 1
    for line in (mirror, nightly):
        assert subprocess.run(["sh", "-c", line], cwd=tmp_path, env=environment).returncode == 0
    assert (tmp_path / "done").read_text() == "mirror\nnightly\n"


def test_one_of_several_machines_runs_it_despite_their_clocks(environment: dict[str, str], tmp_path: Path) -> None:
    job(tmp_path)
    variables, line = cron_lines()[2]
    assert variables == {"INTERLOCK_URL": "redis://locks.example"}
    first = subprocess.Popen(["sh", "-c", line], cwd=tmp_path, env=environment)
    eventually((tmp_path / "done").exists)
    late = [subprocess.run(["sh", "-c", line], cwd=tmp_path, env=environment).returncode for _ in range(2)]
    assert late == [1, 1]
    assert (tmp_path / "done").read_text() == "report\n"
    first.terminate()  # it would stay for the rest of its minute
    first.wait(60)


def test_the_units_of_systemd_are_right(environment: dict[str, str], tmp_path: Path) -> None:
    if not shutil.which("systemd-analyze"):
        pytest.skip("NOT TESTED: there is no systemd-analyze here")
    for name in ("nightly.service", "nightly.timer"):
        text = (CRON / name).read_text().replace("/opt/app/bin", str(tmp_path))
        (tmp_path / name).write_text(text)
    job(tmp_path, "cd $(dirname $0)")
    (tmp_path / "interlock").symlink_to(Path(sys.executable).parent / "interlock")
    subprocess.run(
        ["systemd-analyze", "verify", tmp_path / "nightly.service", tmp_path / "nightly.timer"], check=True
    )
    (start,) = [
        line for line in (tmp_path / "nightly.service").read_text().splitlines() if line.startswith("ExecStart=")
    ]
    command = start.removeprefix("ExecStart=").replace("--at-least 60 ", "").split()
    with interlock.connect(environment["INTERLOCK_URL"]) as locks, locks.lock("report"):
        assert subprocess.run(command, env=environment).returncode == 0
    assert not (tmp_path / "done").exists()
    assert subprocess.run(command, env=environment).returncode == 0
    assert (tmp_path / "done").read_text() == "report\n"


@pytest.mark.parametrize("name", ["scheduler", "report"])
def test_the_commands_of_the_manifests_run(name: str, environment: dict[str, str], tmp_path: Path) -> None:
    manifest = (RECIPES / "kubernetes" / f"{name}.yaml").read_text()
    (line,) = [line for line in manifest.splitlines() if line.strip().startswith("command:")]
    command = yaml.safe_load(line)["command"]
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / f"{name}.py").write_text("print('at work', flush=True)\nimport time; time.sleep(60)\n")
    environment["INTERLOCK_URL"] = (tmp_path / "locks").as_uri()
    with (
        subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True) as pod,
        interlock.connect(environment["INTERLOCK_URL"]) as locks,
    ):
        assert pod.stdout is not None
        assert pod.stdout.readline() == "at work\n"
        (claim,) = locks.claims(name)
        assert claim.state == "using"
        pod.terminate()
        assert pod.wait(30) != 0
        assert locks.claims(name) == []
