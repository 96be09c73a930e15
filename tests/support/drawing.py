"""The drawing of the house: its rooms, floors and the arrows between rooms, as the imports are.

`python -m tests.support.drawing` prints it; docs/explanation/architecture.md has it, and a test compares the two.
"""

from collections.abc import Iterator
from graphlib import TopologicalSorter

import grimp

HOUSES = ("interlock", "interlock.stores")
NO_ROOMS = {"__main__", "claims", "effects", "errors", "process", "protocols", "redis", "taskbell", "threadbell"}
"""Import paths of before, and what starts the command: each only hands on what one room has."""


def arrows_of(graph: grimp.ImportGraph, house: str) -> dict[str, set[str]]:
    """Return what each room of a house, a child of a package, imports of the other rooms."""
    rooms = [each for each in graph.find_children(house) if each.removeprefix("interlock.") not in NO_ROOMS]
    home = {module: room for room in rooms for module in {room, *graph.find_descendants(room)}}
    arrows: dict[str, set[str]] = {room: set() for room in rooms}
    for module, room in home.items():
        imported = graph.find_modules_directly_imported_by(module)
        arrows[room] |= {home[each] for each in imported if each in home} - {room}
    return arrows


def floors_of(arrows: dict[str, set[str]]) -> dict[str, int]:
    """Return the floor of each room: one above the highest of those that it imports.

    Raises:
        CycleError: the arrows go in a circle.
    """
    floors: dict[str, int] = {}
    for room in TopologicalSorter(arrows).static_order():
        floors[room] = 1 + max((floors[each] for each in arrows[room]), default=0)
    return floors


def drawing() -> Iterator[str]:
    """Yield the lines of the drawing, from the highest floor down."""
    graph = grimp.build_graph("interlock", cache_dir=None)
    for house in HOUSES:
        arrows = arrows_of(graph, house)
        floors = floors_of(arrows)
        many = f"{len(arrows)} rooms, {max(floors.values())} floors, {sum(map(len, arrows.values()))} arrows"
        yield f"{house}: {many}"
        for room in sorted(arrows, key=lambda each: (-floors[each], each)):
            names = " ".join(each.rpartition(".")[2] for each in sorted(arrows[room], key=lambda e: (-floors[e], e)))
            yield f"{floors[room]}  {room.rpartition('.')[2]:<10}  {'-> ' + names if names else ''}".rstrip()
        yield ""


if __name__ == "__main__":
    print("\n".join(drawing()))
