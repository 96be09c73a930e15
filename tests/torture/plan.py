"""The options of a run, and the random choice of each operation, from one seed."""

import random
import time
from dataclasses import asdict, dataclass
from importlib import import_module
from typing import Any, Literal, NamedTuple, TypeAlias

from interlock.core.claims import WRITER_UNITS

Colour: TypeAlias = Literal["threads", "tasks", "both"]
IO = 2.0  # the most seconds for one request, where it can be set
PERMITS = 3
HANDED = ("once", "token", "attach", "evict")
"""Operations on exclusive locks that need records, or claims that outlive their grants."""
EXCLUSIVE = ("lock", "rlock", "write", "all", *HANDED)
KINDS = ("lock", "lock", "rlock", "semaphore", "rwlock", "all", *HANDED)
ROUND = 0.1  # seconds; a name of `once` is used for so long
KEEP = 3600.0  # seconds; longer than any run
LONG_WAIT = 10.0  # seconds; longer than any wait of a run without stalls


@dataclass(frozen=True)
class Plan:
    """The options of a run.

    Args:
        store: the URL of the store.
        procs: the number of processes.
        threads: the number of threads, or tasks, of each.
        secs: the duration in seconds; the last fifth has no faults.
        seed: the seed of all random choices; two runs with the same seed still differ in their timing.
        faults: the names of the faults to inject.
        every: the average seconds between two faults.
        ttl: seconds of lease.
        colour: the colour of the processes; "both" alternates.
        shortest: seconds of the shortest lease, of a claim that outstays it.
        hot, cold: the names that are acquired often and rarely.
        namespace: the namespace of the locks.
        io: the most seconds that one request to the store takes.
        slack: seconds that a busy machine may need for instant actions.
        kinds: the kinds of locks of the store; one that is named twice is chosen twice as often.
        line: "all" if waiters are served in order of arrival; "process" if each process has its own line, whose first
            waiter waits in the store's line.
        frees_at_death: True if the store releases the locks of a dead process.
        told: seconds within which a holder notices that the store has lost its claim; None for its lease.
        connect, aconnect: the functions that make the locks, as "module:function"; called with URL, namespace and
            ttl.
    """

    store: str
    procs: int = 4
    threads: int = 2
    secs: float = 10.0
    seed: int = 0
    faults: tuple[str, ...] = ()
    every: float = 0.5
    ttl: float = 1.0
    shortest: float = 0.3
    colour: Colour = "both"
    hot: int = 3
    cold: int = 30
    namespace: str = "torture"
    io: float = 5.0
    slack: float = 2.0
    kinds: tuple[str, ...] = KINDS
    line: Literal["all", "process"] = "all"
    frees_at_death: bool = False
    told: float | None = None
    connect: str = "interlock:connect"
    aconnect: str = "interlock:aconnect"

    @property
    def calm(self) -> float:
        """Seconds at the end without faults: long enough for leases to expire."""
        return min(max(self.secs / 5, 2 * self.ttl), self.secs / 2)

    def of_tasks(self, number: int) -> bool:
        """Return True if process `number` uses tasks."""
        return self.colour == "tasks" or (self.colour == "both" and number % 2 == 1)

    def as_json(self) -> dict[str, Any]:
        """Return the plan as a JSON object."""
        return asdict(self)

    @classmethod
    def from_json(cls, facts: dict[str, Any]) -> "Plan":
        """Return the plan from the result of `as_json`."""
        return cls(**{**facts, "faults": tuple(facts["faults"]), "kinds": tuple(facts.get("kinds", KINDS))})


def promises_of(url: str) -> dict[str, Any]:
    """Return a plan's options for one of our stores: its kinds of locks, its promises and its defaults."""
    if "+advisory:" in url:
        without = {"semaphore", *HANDED, *(["rwlock"] if url.startswith(("mysql", "mariadb")) else [])}
        return {
            "io": 5.0, "kinds": tuple(kind for kind in KINDS if kind not in without), "line": "process",
            "frees_at_death": True, "told": 2.0,
        }  # fmt: skip
    if url.startswith("share:"):
        return {"ttl": 10.0, "shortest": 10.0}
    io = 2.0 if url.startswith(("redis", "valkey", "unix")) else 5.0
    return {"io": io, "frees_at_death": url.startswith("file:")}


class Choice(NamedTuple):
    """One operation.

    Attributes:
        kind: lock, rlock, semaphore, read, write, downgraded (what a writer is after it), all, once, token (a lock
            that is detached), attach (which takes over such a lock) or evict (of any claim).
        names: the names to lock; two for all.
        timeout: seconds to wait; 0 for one try.
        ttl: seconds of lease.
        renew: False to let the lease expire.
        hold: seconds to hold the lock.
        units, capacity: as the store counts them.
        fails: True if a run of `once` ends with an exception, or a writer becomes a reader.
    """

    kind: str
    names: tuple[str, ...]
    timeout: float
    ttl: float
    renew: bool
    hold: float
    units: int
    capacity: int
    fails: bool = False

    def lock(self, locks: Any) -> Any:
        """Return the lock to acquire."""
        name, how = self.names[0], {"timeout": self.timeout, "ttl": self.ttl, "renew": self.renew}
        if self.kind == "all":
            parts = (locks.lock(each, ttl=self.ttl, renew=self.renew) for each in self.names)
            return locks.all(*parts, timeout=self.timeout)
        if self.kind == "semaphore":
            return locks.semaphore(name, self.capacity, units=self.units, **how)
        if self.kind in ("read", "write"):
            return getattr(locks.rwlock(name, **how), self.kind)()
        if self.kind == "once":
            return locks.once(name, keep=KEEP, **how)
        return getattr(locks, "rlock" if self.kind == "rlock" else "lock")(name, **how)

    def facts(self) -> dict[str, Any]:
        """Return the keys of its record in the history."""
        facts = self._asdict()
        del facts["hold"], facts["renew"]
        return facts


def draw(plan: Plan, random: random.Random) -> Choice:
    """Choose a random operation."""
    name, kind = _name(plan, random)
    units = capacity = 1
    names: tuple[str, ...] = (name,)
    if kind == "semaphore":
        units, capacity = random.randint(1, 2), PERMITS
    elif kind == "rwlock":
        kind = "write" if random.random() < 0.3 else "read"
        units, capacity = WRITER_UNITS if kind == "write" else 1, WRITER_UNITS
    elif kind == "all":
        other = random.choice([f"all:{number}" for number in range(4) if f"all:{number}" != name])
        names = (name, other)
    timeout = random.choice((0.0, random.uniform(0.02, 0.5), LONG_WAIT, LONG_WAIT))
    overstays = random.random() < 0.01 and kind not in HANDED  # like a program that takes longer than planned
    ttl = plan.shortest if overstays else plan.ttl
    hold = 2 * ttl if overstays else random.choice((0.0, random.uniform(0.0, 0.02)))
    return Choice(kind, names, timeout, ttl, not overstays, hold, units, capacity, random.random() < 0.4)


def _name(plan: Plan, random: random.Random) -> tuple[str, str]:
    kind = random.choice(plan.kinds)
    if kind == "all":
        return f"all:{random.randrange(4)}", kind
    if kind == "once":  # the clock is that of all processes
        return f"once:{random.randrange(plan.hot)}:{time.monotonic() // ROUND:.0f}", kind
    if kind == "evict":
        return f"evict:{random.randrange(plan.hot)}", random.choice(("lock", "lock", "lock", "evict"))
    if kind in ("token", "attach"):
        return f"token:{random.randrange(plan.hot)}", kind
    if random.random() < 0.7:
        return f"{kind}:hot:{random.randrange(plan.hot)}", kind
    return f"{kind}:cold:{random.randrange(plan.cold)}", kind


def loaded(name: str) -> Any:
    """Import the object of "module:name"."""
    module, _, attribute = name.partition(":")
    return getattr(import_module(module), attribute)
