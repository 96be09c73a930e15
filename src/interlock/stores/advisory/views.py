"""What people are shown: claims of this process and of others, and what `doctor` has found."""

from interlock.core.claims import PENDING, SEPARATOR, USING, WRITER_UNITS, Check, ClaimView
from interlock.runtime.process import HOST, pid
from interlock.stores.advisory.options import Options
from interlock.stores.advisory.room import AdvisoryPlace, now

LONG = 60  # seconds until the locks of a dead machine are free, from which on doctor warns


def view_of(place: AdvisoryPlace) -> ClaimView:
    """Return a claim of this process as people see it."""
    spec = place.claim.spec
    return ClaimView(
        name=spec.key.partition(SEPARATOR)[2],
        id=place.claim.id,
        state=USING if place.state == "using" else PENDING,
        units=spec.units,
        capacity=spec.capacity,
        fence=place.fence or None,
        host=HOST,
        pid=pid(),
        thread=place.claim.who,
        label=spec.label,
        since=place.since,
        expires_in=max(0.0, place.until - now()),
        held_since=place.held,
    )


def foreign_view(key: str, row: tuple[str | None, ...]) -> ClaimView:
    """Return what another process has, or waits for, as the server shows it."""
    number, granted, mode, application, since = row
    host, _, process = (application or "").removeprefix("interlock ").rpartition(":")
    return ClaimView(
        name=key.partition(SEPARATOR)[2],
        id=f"session {number}",
        state=USING if granted == "t" else PENDING,
        units=1,
        capacity=1 if mode == "ExclusiveLock" else WRITER_UNITS,
        fence=None,
        host=host or "?",
        pid=int(process) if process.isdigit() else 0,
        thread="",
        label="",
        since=float(since or 0),
        expires_in=float("inf"),
    )


def ending(view: ClaimView, mysql: bool) -> str:
    """Say how a claim of another process is ended."""
    number = view.id.rpartition(" ")[2]
    statement = f"KILL {number}" if mysql else f"SELECT pg_terminate_backend({number})"
    return (
        f"{view.name!r} is locked by another process ({view.id}, {view.host}), and such a lock ends only with its "
        f"session: {statement} ends that"
    )


def full(most: int) -> str:
    """Say that no more sessions may be opened."""
    return (
        f"this process has {most} sessions with the database already, one for each lock that it holds or waits for: "
        f"release some, or allow more by ?max_sessions="
    )


def checks(row: tuple[str | None, ...], direct: bool, options: Options) -> list[Check]:
    """Return what `doctor` has found.

    Args:
        row: the server's version, how many locks it has room for, and its keepalives: seconds, seconds and probes.
        direct: False if a pooler is in between.
        options: what the URL says.
    """
    version, space, idle, interval, count = row
    seconds = int(idle or 0) + int(interval or 0) * int(count or 0) if direct and int(idle or 0) else 0
    return [
        Check("server", "ok", str(version)),
        Check("session", "ok" if direct else "warn", "direct" if direct else "behind a pooler in session mode"),
        Check("lock table", "ok", f"{space}, {options.max_sessions} of ours, each on a session of its own"),
        _dead_machine(seconds, direct or options.mysql),
    ]


def _dead_machine(seconds: int, direct: bool) -> Check:
    if 0 < seconds <= LONG:
        return Check("dead machine", "ok", f"its locks are free after about {seconds} s")
    if not direct:
        return Check(
            "dead machine", "warn",
            "the pooler frees what a machine had that died without a word: set tcp_keepidle = 15, tcp_keepintvl = 5 "
            "and tcp_keepcnt = 3 in its configuration, or it takes two hours on Linux",
        )  # fmt: skip
    after = f"{seconds} s" if seconds else "what its system says, two hours on Linux"
    return Check(
        "dead machine", "warn",
        f"the server frees what a machine had that died without a word after {after}: set tcp_keepalive_time = 15, "
        f"tcp_keepalive_interval = 5 and tcp_keepalive_probes = 3 in its configuration",
    )  # fmt: skip
