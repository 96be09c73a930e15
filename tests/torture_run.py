"""`./dev torture`: torture stores on private servers, with every fault, and write the page of evidence."""

import argparse
import random
import shlex
import sys
import tempfile
import time
from pathlib import Path

from interlock.testing.torture import Plan, Verdict, judge, run
from interlock.testing.torture.faults import possible
from interlock.testing.torture.history import read
from interlock.testing.torture.report import as_markdown, as_text
from tests.support.torture_server import IO, TorturedServer

SERVERS = ("valkey", "redis", "postgresql")
HEAD = """# Evidence

What runs of `./dev torture` found, written by them. Each section is one run: processes of threads and of asyncio
tasks use locks of all kinds while faults are made, and a judge reads what they wrote down. A violation is two holders
at a time by their own clocks, a fence that repeats or falls, a lost update of a fenced counter, somebody overtaken, a
time-out not kept, a wait longer than the [contract](../reference/contract.md) promises for the fault, or anything
left over. How to run it on a store of yours: [`interlock torture`](../reference/cli.md).

"""


def tortured(kind: str, args: argparse.Namespace, folder: Path) -> Verdict:
    """Run one store; return what the judge says."""
    if kind == "file":
        url = f"file://{folder / 'locks'}"
        return judge(read(run(plan_of(url, args, possible(url, "both", None)), folder / "run")))
    with TorturedServer(kind) as server:
        faults = [name for name in possible(server.url, "both", server) if name != "wipe" or server.wipes]
        return judge(read(run(plan_of(server.url, args, faults), folder / "run", server)))


def plan_of(url: str, args: argparse.Namespace, faults: list[str]) -> Plan:
    """Return what is done on a URL."""
    return Plan(
        url, procs=args.procs, threads=args.threads, secs=args.secs, seed=args.seed, faults=tuple(faults),
        io=IO, frees_at_death=url.startswith("file:"),
    )  # fmt: skip


def main() -> int:
    """Run; return 1 if something was found."""
    parser = argparse.ArgumentParser(prog="./dev torture", description=__doc__)
    parser.add_argument("stores", nargs="*", metavar="STORE", help=f"file, {', '.join(SERVERS)}; all unless given")
    parser.add_argument("--procs", type=int, default=8)
    parser.add_argument("--threads", type=int, default=4)
    parser.add_argument("--secs", type=float, default=900.0)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**32))
    parser.add_argument("--markdown", metavar="FILE")
    args = parser.parse_args()
    command = shlex.join(["./dev", "torture", *sys.argv[1:]])
    page, found = HEAD, 0
    print(f"seed {args.seed}", flush=True)
    for kind in args.stores or ["file", *SERVERS]:
        folder = Path(tempfile.mkdtemp(prefix="torture-"))
        verdict = tortured(kind, args, folder)
        print(f"{kind}: {as_text(verdict)}\nhistory: {folder / 'run' / 'history.jsonl'}", flush=True)
        page += as_markdown(verdict, kind, command, time.strftime("%Y-%m-%d")) + "\n"
        found += len(verdict.violations)
        if args.markdown:
            Path(args.markdown).write_text(page.rstrip() + "\n", encoding="utf-8")
    return int(found > 0)


if __name__ == "__main__":
    sys.exit(main())
