"""What renewals cost: `python -m bench.renewals URL --names 1000 --ttl 6 --seconds 18 [--server PID]`.

Holds that many locks by one connection, and measures the processor time of this process, and of a server with its
children, while the watchdog renews them.
"""

import argparse
import os
import time
from pathlib import Path

import interlock

RENEWED_IN = 3  # parts of a lease: the watchdog renews after a third


def main() -> None:
    """Print one line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("url")
    parser.add_argument("--names", type=int, default=1000)
    parser.add_argument("--ttl", type=float, default=6.0, help="seconds")
    parser.add_argument("--seconds", type=float, default=18.0)
    parser.add_argument("--server", type=int, help="the pid of the server, if it is on this machine")
    wanted = parser.parse_args()
    with interlock.connect(wanted.url) as locks:
        grants = [locks.lock(f"name:{number}", ttl=wanted.ttl).acquire() for number in range(wanted.names)]
        began, ours, theirs = time.monotonic(), time.process_time(), used_by(wanted.server)
        time.sleep(wanted.seconds)
        per_second = wanted.names * RENEWED_IN / wanted.ttl
        renewals = (time.monotonic() - began) * per_second
        costs = f"client {1e6 * (time.process_time() - ours) / renewals:.1f} µs each"
        if wanted.server:
            costs += f", server {1e6 * (used_by(wanted.server) - theirs) / renewals:.1f} µs each"
        lost = sum(grant is None or grant.lost for grant in grants)
        print(
            f"{wanted.names} names, {per_second:,.0f} renewals/s: {costs}; {lost} lost; load {os.getloadavg()[0]:.1f}"
        )


def used_by(server: int | None) -> float:
    """Return the seconds of processor time of a process and its children, also ended ones."""
    if server is None:
        return 0.0
    used = 0
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(stat.parent.name) == server:
            used += sum(int(field) for field in fields[11:15])
        elif int(fields[1]) == server:
            used += sum(int(field) for field in fields[11:13])
    return used / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    main()
