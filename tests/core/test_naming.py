"""Names of locks made of a function's arguments, and the kinds of functions that a decorator accepts."""

import functools
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from interlock.core.errors import InvalidArgument
from interlock.core.functions import checked_kind_of, kind_of, name_of_arguments, refuse_awaitable, shown


def plain(user: Any, book: Any = "none", /, *rest: Any, copy: int = 1, **options: Any) -> None:
    """A function with arguments of each kind."""


async def coroutine(user: Any) -> None:
    """A coroutine function with one argument."""


def generator() -> Iterator[int]:
    yield 1


async def async_generator() -> AsyncIterator[int]:
    yield 1


class Called:
    """An object that is called."""

    def __call__(self) -> None:
        """Do nothing."""

    async def method(self, user: Any) -> None:
        """Do nothing."""


def named(name: str, *args: Any, **kwargs: Any) -> str:
    """Return the name that a call of `plain` gets."""
    return name_of_arguments(name, plain, "guard")(args, kwargs)


def test_a_name_is_made_of_positional_keyword_and_default_values() -> None:
    assert named("{user}:{book}:{copy}", "ann") == "ann:none:1"
    assert named("{user}:{book}:{copy}", "ann", "emma", copy=2) == "ann:emma:2"
    assert named("{rest[0]} {user.id} {{user}}", SimpleNamespace(id=7), "emma", "x") == "x 7 {user}"


def test_a_name_may_mention_the_other_keywords_and_their_items() -> None:
    assert named("{shelf}:{options[shelf]}", "ann", shelf="b") == "b:b"
    assert named("{user}:{options[user]}", "ann", user="bob") == "ann:bob", "the function's own argument first"


@pytest.mark.parametrize("name", ["{user.id}", "{rest[0]}", "{options[shelf]}", "{shelf}", "{user:d}", "{user[x]}"])
def test_a_call_that_makes_no_name_is_refused_with_the_reason(name: str) -> None:
    with pytest.raises(InvalidArgument, match=r"cannot be made of these arguments: .*Error") as refused:
        named(name, "ann")
    assert name in str(refused.value)
    assert refused.value.__cause__ is not None


def test_a_call_with_wrong_arguments_raises_type_error() -> None:
    with pytest.raises(TypeError, match="user"):
        named("{user}")


def test_a_name_with_an_unknown_argument_is_refused_at_once() -> None:
    with pytest.raises(InvalidArgument, match=r"'\{z\}\{book\}' mentions \{book\}\. coroutine has .*: user\.$"):
        name_of_arguments("{z}{book}", coroutine, "guard")
    with pytest.raises(InvalidArgument, match=r"mentions \{x\}\. \S+ has the arguments: none\.$"):
        name_of_arguments("{x.y[0]}", lambda: None, "guard")
    with pytest.raises(InvalidArgument, match=r"has the arguments: user, book, rest, copy, options\.$"):
        named("{0}")
    with pytest.raises(InvalidArgument, match=r"mentions \{\}"):
        named("{}")
    with pytest.raises(InvalidArgument, match=r"'\{user' is not a valid lock name: .+\. Double each literal brace"):
        named("{user")


def test_partials_and_wrappers_have_the_arguments_of_the_call() -> None:
    @functools.wraps(coroutine)
    def wrapper(*args: Any) -> None:
        """Take anything."""

    assert name_of_arguments("{user}", wrapper, "guard")(("ann",), {}) == "ann"
    left = functools.update_wrapper(functools.partial(lambda self, user: None, "me"), lambda self, user: None)
    assert name_of_arguments("{user}", left, "guard")(("ann",), {}) == "ann"


@pytest.mark.parametrize("function", [generator, async_generator])
def test_a_generator_is_not_guarded(function: Any) -> None:
    with pytest.raises(InvalidArgument, match=r"^guard\(\) cannot hold a lock while a generator is being read"):
        name_of_arguments("a", function, "guard")


@pytest.mark.parametrize(
    ("function", "kind"),
    [
        (plain, "function"),
        (coroutine, "coroutine function"),
        (generator, "generator function"),
        (async_generator, "async generator function"),
        (Called(), "function"),
        (Called().method, "coroutine function"),
        (staticmethod(coroutine), "coroutine function"),
        (functools.partial(functools.partial(async_generator)), "async generator function"),
        (len, "function"),
    ],
)
def test_what_a_function_is(function: Any, kind: str) -> None:
    assert kind_of(function) == checked_kind_of(function) == kind


def test_what_can_not_be_called_and_classes_are_not_decorated() -> None:
    with pytest.raises(InvalidArgument, match=r"^Called is a class\. Decorate the methods"):
        checked_kind_of(Called)
    with pytest.raises(InvalidArgument, match=r"^5 is not callable"):
        checked_kind_of(5)
    assert shown(functools.partial(plain)).startswith("functools.partial(<function plain")


@contextmanager
def manager() -> Iterator[None]:
    yield


@asynccontextmanager
async def async_manager() -> AsyncIterator[None]:
    yield


class OddGeneratorContextManager:
    """Not that of the standard library."""


@pytest.mark.parametrize(
    ("make", "what"),
    [
        (lambda: coroutine(1), "a coroutine"),
        (generator, "a generator"),
        (async_generator, "an async generator"),
        (manager, "a context manager made of a generator"),
        (async_manager, "a context manager made of a generator"),
    ],
)
def test_a_result_whose_work_is_still_to_be_done_is_refused(make: Any, what: str) -> None:
    result = make()
    with pytest.raises(InvalidArgument, match=f"^plain returned {what}, which would run after the release"):
        refuse_awaitable(result, plain)
    with pytest.raises(InvalidArgument, match=f"^plain returned {what}: don't$"):
        refuse_awaitable(result, plain, ": don't")
    if what == "a coroutine":
        assert result.cr_frame is None, "it is closed"
    elif what == "a generator":
        assert result.gi_frame is None, "it is closed"


class Compiled(Coroutine[Any, Any, None]):
    """A coroutine like those of Cython and mypyc, with its own type."""

    closed = False

    def send(self, value: Any) -> Any:
        """Go on."""

    def throw(self, *error: Any) -> Any:
        """Go on until the exception is raised."""

    def __await__(self) -> Any:
        """Wait for it."""

    def close(self) -> None:
        """End it."""
        self.closed = True


def test_a_coroutine_of_a_compiler_is_one() -> None:
    result = Compiled()
    with pytest.raises(InvalidArgument, match="returned a coroutine"):
        refuse_awaitable(result, plain)
    assert result.closed


@pytest.mark.parametrize("result", [None, 5, [1], OddGeneratorContextManager(), functools.partial(plain)])
def test_other_results_are_finished(result: Any) -> None:
    refuse_awaitable(result, plain)
