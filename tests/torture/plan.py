"""What a run does: the options of a run, and the choice of each operation, all drawn from one seed."""

import random
from dataclasses import asdict, dataclass
from importlib import import_module
from typing import Any, Literal, NamedTuple, TypeAlias

from interlock.core.claims import WRITER_UNITS

Colour: TypeAlias = Literal["threads", "tasks", "both"]
PERMITS = 3
EXCLUSIVE = ("lock", "rlock", "write", "all")
KINDS = ("lock", "lock", "rlock", "semaphore", "rwlock", "all")
LONG_WAIT = 10.0  # seconds; no line of a run is as long unless something stalls


@dataclass(frozen=True)
class Plan:
    """What a run does.

    Args:
        store: the URL.
        procs: processes.
        threads: threads, or tasks, of each.
        secs: seconds; no fault comes in the last fifth of them.
        seed: of all that is drawn; what the machine makes of it differs nevertheless.
        faults: names of the faults to make.
        every: seconds between two faults, on average.
        ttl: seconds of lease.
        colour: of the processes; "both": they take turns.
        hot, cold: names that are asked for often and seldom.
        namespace: of the locks.
        io: seconds that one request to the store takes at most.
        slack: seconds that a busy machine may take for what should take none.
        kinds: of locks that the store has; one that is named twice is asked for twice as often.
        line: "all" if a claim in line is before all that come later; "readers together" if a reader may pass beside
            other readers; "process" if each process has a line of its
            own, whose first one stands in the store's.
        frees_at_death: True if the store frees what a dead process held.
        told: seconds within which a holder is told that the store has forgotten it; its lease unless given.
        connect, aconnect: what makes the locks, as "module:function"; called with the URL, namespace and ttl.
    """

    store: str
    procs: int = 4
    threads: int = 2
    secs: float = 10.0
    seed: int = 0
    faults: tuple[str, ...] = ()
    every: float = 0.5
    ttl: float = 1.0
    colour: Colour = "both"
    hot: int = 3
    cold: int = 30
    namespace: str = "torture"
    io: float = 5.0
    slack: float = 2.0
    kinds: tuple[str, ...] = KINDS
    line: Literal["all", "readers together", "process"] = "all"
    frees_at_death: bool = False
    told: float | None = None
    connect: str = "interlock:connect"
    aconnect: str = "interlock:aconnect"

    @property
    def calm(self) -> float:
        """Seconds at the end in which no fault comes: long enough for leases to end."""
        return min(max(self.secs / 5, 2 * self.ttl), self.secs / 2)

    def of_tasks(self, number: int) -> bool:
        """Tell whether process `number` uses tasks."""
        return self.colour == "tasks" or (self.colour == "both" and number % 2 == 1)

    def as_json(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        return asdict(self)

    @classmethod
    def from_json(cls, facts: dict[str, Any]) -> "Plan":
        """Return the plan that `as_json` gave."""
        return cls(**{**facts, "faults": tuple(facts["faults"]), "kinds": tuple(facts.get("kinds", KINDS))})


def promises_of(url: str) -> dict[str, Any]:
    """Return what a plan says of a store of ours: what it has, promises, and does unless its URL says otherwise."""
    if "+advisory:" in url:
        without = {"semaphore", "rwlock"} if url.startswith(("mysql", "mariadb")) else {"semaphore"}
        return {
            "io": 5.0, "kinds": tuple(kind for kind in KINDS if kind not in without), "line": "process",
            "frees_at_death": True, "told": 2.0,
        }  # fmt: skip
    io = 2.0 if url.startswith(("redis", "valkey", "unix")) else 5.0
    return {"io": io, "frees_at_death": url.startswith("file:")}


class Choice(NamedTuple):
    """One operation.

    Attributes:
        kind: lock, rlock, semaphore, read, write or all.
        names: to lock; two for all.
        timeout: seconds to wait; 0 for one try.
        ttl: seconds of lease.
        renew: False to let the lease end.
        hold: seconds to hold it.
        units, capacity: as the store counts them.
    """

    kind: str
    names: tuple[str, ...]
    timeout: float
    ttl: float
    renew: bool
    hold: float
    units: int
    capacity: int

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
        return getattr(locks, self.kind)(name, **how)

    def facts(self) -> dict[str, Any]:
        """Return what the history says of it."""
        facts = self._asdict()
        del facts["hold"], facts["renew"]
        return facts


def draw(plan: Plan, random: random.Random) -> Choice:
    """Draw an operation."""
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
    overstays = random.random() < 0.01  # as a program that takes longer than it thought
    ttl = 0.3 if overstays else plan.ttl
    hold = 2 * ttl if overstays else random.choice((0.0, random.uniform(0.0, 0.02)))
    return Choice(kind, names, timeout, ttl, not overstays, hold, units, capacity)


def _name(plan: Plan, random: random.Random) -> tuple[str, str]:
    kind = random.choice(plan.kinds)
    if kind == "all":
        return f"all:{random.randrange(4)}", kind
    if random.random() < 0.7:
        return f"{kind}:hot:{random.randrange(plan.hot)}", kind
    return f"{kind}:cold:{random.randrange(plan.cold)}", kind


def loaded(name: str) -> Any:
    """Return what "module:name" means."""
    module, _, attribute = name.partition(":")
    return getattr(import_module(module), attribute)
