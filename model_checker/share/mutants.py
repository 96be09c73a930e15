"""Mutants with one safeguard removed, and three designs with hard links to numbers: the checker must catch each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from model_checker.share.configurations import Configuration
from model_checker.share.world import Client, Names, State, Version, World

TWO = Configuration("two clients, two swaps each, a loss", (2, 2), 1)


@dataclass(frozen=True, slots=True)
class ShareMutant:
    """A world without one safeguard.

    Attributes:
        name: the missing safeguard.
        expected: a part of the finding.
        kind: the system.
        world: its configuration.
    """

    name: str
    expected: str
    kind: type[World]
    world: Configuration = TWO


class Believing(World):
    """Takes "no such file" for an answer."""

    def on_missing(self, state: State, client: Client, at: int) -> Iterator[tuple[str, State]]:
        yield "is told that the token is missing", self.lost(state, client, at)


class Hasty(World):
    """Removes its own line before it knows that it has lost."""

    def on_missing(self, state: State, client: Client, at: int) -> Iterator[tuple[str, State]]:
        mine = frozenset(name for name in state.names if name[:3] == ("d", client.base[0] + 1, client.nonce))
        after = self.at(state, at, client._replace(doing="check"))
        yield "removes its own line", self.changed(after, state.names - mine)


class Sweeping(World):
    """Removes lines of the next version, too, as a rule such as "older than an hour" would."""

    def removable(self, names: Names, shown: Version) -> Names:
        next_ones = {name for name in names if name[0] == "d" and name[1] == shown[0] + 1}
        return super().removable(names, shown) | frozenset(next_ones)


class Linking(World):
    """Links the next number, which a client removes after its own link: a number can be linked again.

    The token of a version has only its number as its name here.
    """

    def violation(self, state: State) -> str | None:
        return state.wrong

    def on_swap(self, state: State, client: Client, at: int) -> Iterator[tuple[str, State]]:
        number = client.base[0] + 1
        if any(name[0] == "t" and name[1] == number for name in state.names):
            yield "finds the number taken", self.at(state, at, client._replace(doing="next"))
            return
        linked = self.changed(state, state.names | {("t", number, client.nonce, ())})
        if top_number(state.names) == client.base[0]:
            linked = linked._replace(chain=(*state.chain, client.nonce))
        yield f"links {number}", self.at(linked, at, client._replace(doing="linked"))

    def on_linked(self, state: State, client: Client, at: int) -> Iterator[tuple[str, State]]:
        yield self.confirmed(state, client, at)

    def confirmed(self, state: State, client: Client, at: int) -> tuple[str, State]:
        """Remove the old number, and believe that the link was the first with its number."""
        names = frozenset(name for name in state.names if name[:2] != ("t", client.base[0]))
        wrong = None if client.nonce in state.chain else f"{client.base[0] + 1} was linked again"
        after = client._replace(doing="next", known=max(client.known, (client.base[0] + 1, client.nonce)))
        return "removes the old number", self.changed(self.at(state, at, after), names)._replace(wrong=wrong)


class LinkingThenListing(Linking):
    """Lists after its link, and believes in it if no higher number is shown."""

    def on_linked(self, state: State, client: Client, at: int) -> Iterator[tuple[str, State]]:
        for names in sorted(state.past, key=sorted):
            if top_number(names) <= client.base[0] + 1:
                yield self.confirmed(state, client, at)
                return


class LinkingThenRemoving(Linking):
    """Believes in its link if it was the one to remove the number before."""

    def on_linked(self, state: State, client: Client, at: int) -> Iterator[tuple[str, State]]:
        yield "is killed; another process goes on", self.at(state, at, client._replace(doing="next"))
        if any(name[:2] == ("t", client.base[0]) for name in state.names):
            yield self.confirmed(state, client, at)
        else:
            yield "finds the old number removed", self.at(state, at, client._replace(doing="unknown"))


def top_number(names: Names) -> int:
    """Return the highest number of a token."""
    return max(name[1] for name in names if name[0] == "t")


MUTANTS = (
    ShareMutant("when the token is missing, read the line to see who won", "believes that it failed", Believing),
    ShareMutant("a client removes its own line only after it has lost", "the line of version", Hasty),
    ShareMutant("nobody removes a line of the next version: its writer may sleep", "the line of version", Sweeping),
    ShareMutant("tokens with nonces (instead: hard links to numbers)", "was linked again", Linking),
    ShareMutant("the same, although the client then lists the folder", "was linked again", LinkingThenListing),
    ShareMutant("the same, although the client must remove the old number", "was linked again", LinkingThenRemoving),
)
