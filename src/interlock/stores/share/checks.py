"""The checks of `doctor` for a shared folder, and a race of renames."""

import os
import secrets
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

from interlock.core.claims import Check
from interlock.core.errors import StoreError
from interlock.runtime import clock
from interlock.stores.files.system import system
from interlock.stores.share.folder import SharedFolder, unusable

TRIED = system.LOCAL | {"fuse.glusterfs", "fuse.sshfs"}
"""File systems on which interlock is tested."""
CLIENTS, ROUNDS = 4, 100
LATEST = 60.0  # seconds to wait for the slowest thread of a round
SAME_CLOCK = 0.5  # seconds that two readings of one clock may differ


def examine(folder: SharedFolder) -> list[Check]:
    """Return the findings about a folder."""
    try:
        raced = race(folder, CLIENTS, ROUNDS)
        mode = os.stat(folder.path).st_mode
    except (OSError, StoreError) as error:
        return [Check("folder", "fail", str(error))]
    advice = (
        ""
        if folder.kind in TRIED
        else f" interlock was not tested on {folder.kind}. Run the torture tests in this folder first."
    )
    local = " It is a disk of this machine: do the others reach it?" if folder.kind in system.LOCAL else ""
    caches = (
        "can come from a cache, so interlock writes into the folder before each read"
        if folder.is_cached
        else "are read from the server"
    )
    apart = abs(clock.awake_or_not() + folder.ahead - clock.time_of_day())
    stamped = (
        f"The clock that stamps files differs from this machine's by {apart:.1f} s, so the server sets the times of "
        "new files. ?one_clock=true is possible, unless the server delegates timestamps (NFS 4.2)."
    )
    same = "File times agree with this machine's clock. This does not show which machine sets them."
    return [
        Check("mount", "warn" if advice else "ok", f"{folder.path} is on {folder.kind}.{advice}{local}"),
        Check("caches", "ok", f"Listings {caches}."),
        Check("clock", "ok", stamped if apart > SAME_CLOCK else same),
        Check("permissions", "warn", "Every user may remove locks. Run chmod o-w.")
        if mode & 0o002
        else Check("permissions", "ok", f"Mode {mode & 0o7777:o}."),
        raced,
    ]


def race(folder: SharedFolder, clients: int, rounds: int) -> Check:
    """Let many threads rename one file at the same moment, repeatedly: only one may succeed.

    Args:
        folder: the shared folder.
        clients: the number of threads.
        rounds: the number of rounds.

    Raises:
        StoreError: the folder is unusable.
    """
    folder.prepare()
    path, start = os.path.join(folder.path, f".race-{secrets.token_hex(8)}"), Barrier(clients)
    winners, began = Counter[int](), clock.now()

    def rename(number: int) -> bool:
        start.wait(LATEST)
        return folder.does(os.rename, path, f"{path}-{number}")

    try:
        with ThreadPoolExecutor(clients) as pool:
            for _ in range(rounds):
                folder.create(path)
                winners[sum(pool.map(rename, range(clients)))] += 1
                folder.remove(path, *(f"{path}-{number}" for number in range(clients)))
    except OSError as error:
        raise unusable(folder.path, error) from error
    took = 1000 * (clock.now() - began) / rounds
    found = f"{clients} clients, {rounds} rounds of {took:.1f} ms: one winner in {winners[1]}."
    if winners[1] == rounds:
        return Check("race", "ok", found)
    return Check("race", "fail", f"{found} Do not keep locks there: a rename must succeed exactly once.")
