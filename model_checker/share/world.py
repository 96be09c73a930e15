"""Clients that swap one line in a shared folder, as `interlock.stores.share.lines` does, and its server.

The server performs each rename by name and atomically. All else is unreliable: a listing may be any former one, a
reply may be lost after the rename, a request may arrive twice, or later, and a client may stop for ever. Contents are
not modelled beyond the nonces of former versions, and neither is the birth of a name, which is one rename.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, TypeAlias

from model_checker.explore import Successor, System, put
from model_checker.share.configurations import Configuration

HISTORY = 2
"""Former nonces in a line; few, so that a history that is too short occurs, too."""
TRIES = 2
Version: TypeAlias = tuple[int, str]
"""Number and nonce."""
Former: TypeAlias = tuple[str, ...]
"""The nonces of the versions before."""
Name: TypeAlias = tuple[str, int, str, Former]
"""A file: "t" (without former nonces) or "d", and its version."""
Names: TypeAlias = frozenset[Name]
Rename: TypeAlias = tuple[Version, Version]


class Client(NamedTuple):
    """A client.

    Attributes:
        doing: its next step.
        left: how many swaps it has to do, with the present one.
        known, former: the latest version whose line it has read, and the former nonces in that line.
        base: the version that it replaces.
        shown: the version that a listing has just shown.
        garbage: the files that it is about to remove.
        nonce: of its own version.
        tries: how often it may still rename.
    """

    doing: str
    left: int
    known: Version = (0, "")
    former: Former = ()
    base: Version = (0, "")
    shown: Version = (0, "")
    garbage: Names = frozenset()
    nonce: str = ""
    tries: int = 0


class State(NamedTuple):
    """A state.

    Attributes:
        names: the files on the server.
        past: all former listings.
        chain: the nonces of all versions that were published, in order.
        late: the requests that may still arrive.
        losses: how many more replies may be lost.
        clients: the clients.
        wrong: what is wrong; None if nothing.
    """

    names: Names
    past: frozenset[Names]
    chain: Former
    late: frozenset[Rename]
    losses: int
    clients: tuple[Client, ...]
    wrong: str | None = None


Step: TypeAlias = Successor[State]


def top(names: Names) -> Version:
    """Return the version that a listing shows: its token with the highest number."""
    return max((number, nonce) for kind, number, nonce, _ in names if kind == "t")


class World(System[State]):
    """The system of one configuration.

    Args:
        configuration: the clients and faults.
    """

    def __init__(self, configuration: Configuration) -> None:
        self.configuration = configuration

    def init(self) -> State:
        """Return the first state: version 1 exists."""
        names: Names = frozenset({("t", 1, "0", ()), ("d", 1, "0", ())})
        clients = tuple(Client("list", swaps) for swaps in self.configuration.swaps)
        return State(names, frozenset({names}), ("0",), frozenset(), self.configuration.losses, clients)

    def violation(self, state: State) -> str | None:
        """Return what is wrong with a state."""
        if state.wrong is not None:
            return state.wrong
        tokens = [(number, nonce) for kind, number, nonce, _ in state.names if kind == "t"]
        if len(tokens) != 1:
            return f"{len(tokens)} tokens"
        number, nonce = tokens[0]
        if not any(name[:3] == ("d", number, nonce) for name in state.names):
            return f"the line of version {number} is gone"
        return None

    def successors(self, state: State) -> Iterator[Step]:
        """Return every possible step."""
        for request in sorted(state.late):
            rest = state._replace(late=state.late - {request})
            yield "network", f"a late rename of {request[0]} arrives", "late", self.renamed(rest, *request) or rest
        for at, client in enumerate(state.clients):
            step = getattr(self, f"on_{client.doing.replace(' ', '_')}", None)
            if step is not None:
                for label, after in step(state, client, at):
                    yield at, f"{'ABC'[at]} {label}", client.doing, after

    # -- the server --

    def renamed(self, state: State, old: Version, new: Version) -> State | None:
        """Return the state after a rename; None if there is no such token."""
        token: Name = ("t", *old, ())
        if token not in state.names:
            return None
        return self.changed(state, state.names - {token} | {("t", *new, ())})._replace(chain=(*state.chain, new[1]))

    def changed(self, state: State, names: Names) -> State:
        """Return the state with other files."""
        return state._replace(names=names, past=state.past | {names})

    # -- a client --

    def listings(self, state: State, client: Client) -> Iterator[tuple[Version, Names]]:
        """Yield what a listing may show: no client accepts an older version than it has seen."""
        for names in sorted(state.past if self.configuration.stale else (state.names,), key=sorted):
            if (shown := top(names)) >= client.known:
                yield shown, names

    def removable(self, names: Names, shown: Version) -> Names:
        """Return the lines that nobody can publish any more, and that are not the present one."""
        return frozenset(
            name
            for name in names
            if name[0] == "d" and (name[1] < shown[0] or (name[1] == shown[0] and name[2] != shown[1]))
        )

    def former(self, state: State, client: Client) -> Former | None:
        """Return the former nonces in the line of the version that was shown; None if its file is gone."""
        if client.shown == client.known:
            return client.former
        return next((name[3] for name in state.names if name[:3] == ("d", *client.shown)), None)

    def on_list(self, state: State, client: Client, at: int) -> Iterator[tuple[str, State]]:
        for shown, names in self.listings(state, client):
            after = client._replace(doing="read", shown=shown, garbage=self.removable(names, shown))
            yield f"lists version {shown}", self.at(state, at, after)

    def on_read(self, state: State, client: Client, at: int) -> Iterator[tuple[str, State]]:
        former = self.former(state, client)
        if former is None:
            yield "finds no line, and lists again", self.at(state, at, client._replace(doing="list"))
            return
        yield (
            "reads it",
            self.at(state, at, client._replace(doing="sweep", known=client.shown, base=client.shown, former=former)),
        )

    def on_sweep(self, state: State, client: Client, at: int) -> Iterator[tuple[str, State]]:
        for name in sorted(client.garbage & state.names):
            after = client._replace(garbage=client.garbage - {name})
            yield f"removes the line {name[1:3]}", self.changed(self.at(state, at, after), state.names - {name})
        yield "has removed enough", self.at(state, at, client._replace(doing="write", garbage=frozenset()))

    def on_write(self, state: State, client: Client, at: int) -> Iterator[tuple[str, State]]:
        nonce = f"{at}{client.left}"
        line: Name = ("d", client.base[0] + 1, nonce, (*client.former, client.base[1])[-HISTORY:])
        after = client._replace(doing="swap", nonce=nonce, tries=TRIES)
        yield f"writes the line {line[1:3]}", self.changed(self.at(state, at, after), state.names | {line})

    def on_swap(self, state: State, client: Client, at: int) -> Iterator[tuple[str, State]]:
        new = client.base[0] + 1, client.nonce
        missing = self.at(state, at, client._replace(doing="missing", tries=client.tries - 1))
        after = self.renamed(state, client.base, new)
        if after is None:
            yield "renames, too late", missing
            return
        yield f"renames to {new}", self.at(after, at, client._replace(doing="won"))
        if state.losses:
            less = missing._replace(losses=state.losses - 1)
            late = less._replace(late=state.late | {(client.base, new)})
            yield (
                "renames; the request is sent again",
                less._replace(names=after.names, past=after.past, chain=after.chain),
            )
            yield "finds no token in a stale cache", less
            yield "finds no token in a stale cache; the request arrives later", late
            yield "gets no reply; the request arrives later", self.at(late, at, client._replace(doing="unknown"))

    def on_missing(self, state: State, client: Client, at: int) -> Iterator[tuple[str, State]]:
        yield "is told that the token is missing", self.at(state, at, client._replace(doing="check"))

    def on_check(self, state: State, client: Client, at: int) -> Iterator[tuple[str, State]]:
        for shown, _ in self.listings(state, client):
            yield f"lists version {shown}", self.at(state, at, client._replace(doing="check read", shown=shown))

    def on_check_read(self, state: State, client: Client, at: int) -> Iterator[tuple[str, State]]:
        former = self.former(state, client)
        if former is None:
            yield "finds no line, and lists again", self.at(state, at, client._replace(doing="check"))
            return
        seen = client._replace(known=client.shown, former=former)
        if client.nonce in (*former, client.shown[1]):
            yield "finds its own version", self.at(state, at, seen._replace(doing="won"))
        elif client.base[1] in former:
            yield "finds another version", self.lost(state, seen, at)
        else:
            doing = "swap" if client.tries else "unknown"
            yield "finds neither", self.at(state, at, seen._replace(doing=doing))

    def on_won(self, state: State, client: Client, at: int) -> Iterator[tuple[str, State]]:
        wrong = None if client.nonce in state.chain else f"{client.nonce} was not written, and its client believes it"
        new = client.base[0] + 1, client.nonce
        names = frozenset(name for name in state.names if name[:3] != ("d", *client.base))
        after = client._replace(doing="next", known=max(client.known, new))
        if after.known == new:
            after = after._replace(former=(*client.former, client.base[1])[-HISTORY:])
        yield "removes the old line", self.changed(self.at(state, at, after), names)._replace(wrong=wrong)

    def lost(self, state: State, client: Client, at: int) -> State:
        """Return the state after a client was told that its version was not written."""
        new = client.base[0] + 1, client.nonce
        wrong = None
        if client.nonce in state.chain:
            wrong = "a write succeeded, but its client believes that it failed"
        elif ("t", *client.base, ()) in state.names and (client.base, new) in state.late:
            wrong = "a write may still succeed, but its client believes that it failed"
        line = frozenset(name for name in state.names if name[:3] == ("d", *new))
        return self.changed(self.at(state, at, client._replace(doing="next")), state.names - line)._replace(
            wrong=wrong
        )

    def on_next(self, state: State, client: Client, at: int) -> Iterator[tuple[str, State]]:
        if client.left > 1:
            after = Client("list", client.left - 1, client.known, client.former)
            yield "begins again", self.at(state, at, after)

    on_unknown = on_next

    def at(self, state: State, number: int, client: Client) -> State:
        """Return the state with another client in one place."""
        return state._replace(clients=put(state.clients, number, client))
