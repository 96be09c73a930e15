"""`./dev torture`: run torture tests on private servers, or on a store at a URL, and write the page of evidence."""

import argparse
import random
import sys
import tempfile
import time
from pathlib import Path

from interlock.core.redaction import masked
from tests.torture.faults import FAULTS, NotMade
from tests.torture.history import read
from tests.torture.judge import judge
from tests.torture.report import as_row, as_text, with_row
from tests.torture.runs import ON_WINDOWS, STORES, tortured


def main() -> int:
    """Run; return 1 if the judge found a violation."""
    parser = argparse.ArgumentParser(prog="./dev torture", description=__doc__)
    parser.add_argument(
        "stores",
        nargs="*",
        metavar="STORE|URL",
        help=f"{', '.join(STORES)}, {', '.join(ON_WINDOWS)}; without names the first {len(STORES)}",
    )
    parser.add_argument("--procs", type=int, default=8)
    parser.add_argument("--threads", type=int, default=4)
    parser.add_argument("--secs", type=float, default=900.0)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**32))
    parser.add_argument("--slack", type=float, default=2.0)
    parser.add_argument("--fault", action="append", choices=FAULTS, help="only these; all that the store can have")
    parser.add_argument("--markdown", metavar="FILE", help="a page to write a row into")
    parser.add_argument("--judge", metavar="FILE", help="run nothing; judge the history of a run")
    args = parser.parse_args()
    if args.judge:
        verdict = judge(read(args.judge))
        print(as_text(verdict))
        return int(bool(verdict.violations))
    how = {name: getattr(args, name) for name in ("procs", "threads", "secs", "seed", "slack")}
    how |= {} if args.fault is None else {"faults": tuple(args.fault)}
    found = 0
    print(f"seed {args.seed}", flush=True)
    for kind in args.stores or STORES:
        folder = Path(tempfile.mkdtemp(prefix="torture-"))
        try:
            verdict = tortured(kind, folder, **how)
        except (NotMade, ValueError) as error:
            print(f"{masked(kind)}: {error}", file=sys.stderr)
            return 75
        print(f"{masked(kind)}: {as_text(verdict)}\nhistory: {folder / 'run' / 'history.jsonl'}", flush=True)
        found += len(verdict.violations)
        if args.markdown:
            page = Path(args.markdown)
            row = as_row(verdict, masked(kind), time.strftime("%Y-%m-%d"))
            page.write_text(with_row(page.read_text() if page.exists() else "", row), encoding="utf-8")
    return int(found > 0)


if __name__ == "__main__":
    sys.exit(main())
