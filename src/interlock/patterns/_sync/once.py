# Generated from _async/once.py by tools/unasync.py; change that one.
"""Runs that complete exactly once while their record is kept."""

import functools
import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from interlock.client._sync.client import Client
from interlock.client._sync.grants import Grant
from interlock.client.arguments import AcquireOptions, P
from interlock.core.claims import LockSpec, checked_seconds
from interlock.core.errors import InvalidArgument, NotKept, StoreError
from interlock.core.functions import check_kind, name_of_arguments, refuse_awaitable
from interlock.patterns.payload import canonical, digest_of, labelled, recorded, refuse_recorded, refuse_running
from interlock.runtime import _threads as rt
from interlock.runtime.blocks import Acquired, CallSite, call_site

MAX_RESULT_LENGTH = 65_536  # characters of JSON
LONGEST_KEEP = 366 * 86400.0  # seconds
UNKEPT = ""
"""The mark of a result that could not be stored."""
_JSON = json.JSONDecoder()
NO_ARGUMENTS: Mapping[str, object] = {}
R = TypeVar("R")
S = TypeVar("S")


class Run:
    """One use of a `once`, as a context manager.

    Args:
        name: the run's name.
        grant: the held lock; None if there is nothing to do.
        keep: seconds for which the record is kept.
        text: the stored result.
        digest: the digest of the payload, kept with the record; "" without a payload.

    Attributes:
        grant: the argument; its fence rises with each run of this name.
        due: True if the caller must do the work, which no other caller does at the same time.
    """

    def __init__(
        self, name: str, grant: Grant | None, keep: float = 0.0, text: str = "null", digest: str = ""
    ) -> None:
        self._name = name
        self._keep = keep
        self._result = None
        self._text: str | None = text
        self._digest = digest
        self.grant = self._hold = grant
        self.due = grant is not None

    @property
    def result(self) -> Any:
        """The result of the completed run; set it before the block ends (default: None).

        Raises:
            NotKept: the run is recorded, but its result was too large or not JSON.
        """
        return self._result if self._text is None else _read(self._name, self._text)

    @result.setter
    def result(self, value: Any) -> None:
        self._result, self._text = value, None

    @property
    def inherited(self) -> bool:
        """True in a forked child, which does not own its parent's runs."""
        return self.grant is not None and self.grant.inherited

    @property
    def _over(self) -> bool:
        return self.grant is None or self.grant._over

    def __enter__(self) -> Self:
        if self.grant is not None:
            self.grant._enter_body(rt.caller())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        grant = self.grant
        if grant is None:
            return
        if error is not None:
            grant.__exit__(kind, error, trace)
            return
        grant._leave_body(kind)
        self._text, problem = _written(self._name, self._result)
        value = recorded(grant.fence, self._digest, self._text)
        if not grant._complete(self._keep, value) and not grant.inherited:
            grant.check()
        if problem is not None:
            raise problem


class Once(rt.WrongWith, Generic[S]):
    """A run that is done once while its record is kept; returned by `Locks.once`.

    Many threads may use it at the same time: one runs, the others wait for its result.  `S` is the type that a skipped
    call returns: None, or `Never` if no call is skipped.

    Attributes:
        name: the run's name.
    """

    def __init__(
        self,
        client: Client,
        name: str,
        keep: float,
        spec: LockSpec,
        options: AcquireOptions,
        skips: bool,
        payload: object = None,
    ) -> None:
        self._client = client
        self.name = name
        self._keep = checked_seconds(keep, "keep", most=LONGEST_KEEP)
        self._spec = spec
        self._options = options
        self._skips = skips
        self._payload = payload if payload is None or callable(payload) else canonical(payload)
        self._acquired = Acquired()

    def run(self, function: Callable[P, rt.Result[R]], *args: P.args, **kwargs: P.kwargs) -> R | S:
        """Call a function unless its run is recorded; return its result from JSON.

        Args:
            function: does the work.
            args, kwargs: its arguments.

        Returns:
            The result, also to later callers; None if another caller runs and this call skips.

        Raises:
            InvalidArgument: the function is of the wrong kind; or its result cannot be stored, but the run is
                recorded as done.
            NotKept: the run was done, but its result was not stored.
            PayloadMismatch: the recorded or the running call has another payload.
            LockTimeout: another caller was running until the time was over.
            LockLost: the lease expired during the run: another caller runs, and this run was not recorded.
            StoreError: the store failed.
        """
        check_kind(function, rt.WRAPPED_KIND)
        return self._run(self.name, function, *args, **kwargs)

    def _run(self, name: str, function: Callable[P, rt.Result[R]], *args: P.args, **kwargs: P.kwargs) -> R | S:
        run = self._begin(name, args, kwargs)
        with run:
            if run.due:
                run.result = function(*args, **kwargs)
                refuse_awaitable(run.result, function)
        result: R | S = run.result
        return result

    def _begin(
        self, name: str, args: tuple[object, ...] = (), kwargs: Mapping[str, object] = NO_ARGUMENTS
    ) -> Run:
        """Wait for the turn to run, or for the completion of another run.

        Args:
            name: the run's name.
            args, kwargs: the arguments of the call, from which a function makes the payload.
        """
        client, options, owner = self._client, self._options, rt.caller()
        spec = self._spec if name == self.name else self._spec._replace(key=client.key(name))
        digest = ""
        if self._payload is not None and (data := self._data(args, kwargs)) is not None:
            digest = digest_of(spec.key, data)
            spec = spec._replace(label=labelled(digest, spec.label))
            options = options._replace(check_line=functools.partial(refuse_running, name, digest))
        deadline = None if options.timeout is None else client.now() + options.timeout
        while True:
            left = None if deadline is None else max(0.0, deadline - client.now())
            grant = client.acquire(spec, options, left, owner)
            if grant is not None:
                return Run(name, grant, self._keep, digest=digest)
            kept = client.state().queue.run_result(spec.key)
            if kept is not None:
                if digest:
                    refuse_recorded(name, digest, kept)
                return Run(name, None, text=kept.partition(" ")[2])
            if deadline is not None and client.now() >= deadline:
                break  # otherwise the record expired between the two requests
        if digest:  # one try does not wait in line, where `check_line` is called
            with suppress(StoreError):
                refuse_running(name, digest, client.look(spec.key))
        if self._skips:
            return Run(name, None)
        raise client.too_late([spec], options.timeout, owner)

    def _data(self, args: tuple[object, ...], kwargs: Mapping[str, object]) -> bytes | None:
        """Return the payload of a call; None without a payload."""
        if not callable(self._payload):
            return self._payload
        payload = self._payload(*args, **kwargs)
        return None if payload is None else canonical(payload)

    def __enter__(self) -> rt.Result[Run]:
        return self._enter(call_site())

    def _enter(self, site: CallSite) -> Run:
        if callable(self._payload):
            raise InvalidArgument("A block has no arguments for the function payload=. Pass the payload itself.")
        run = self._begin(self.name)
        try:
            self._acquired.note(site, run, rt.caller())
            return run.__enter__()
        except BaseException:  # an interrupt: no block will end this run
            self._acquired.drop(run)
            if run.grant is not None:
                rt.finish(run.grant.release)
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for run in self._acquired.end(rt.caller, self):
            run.__exit__(kind, error, trace)

    def __call__(self, function: Callable[P, rt.Result[R]]) -> Callable[P, rt.Result[R | S]]:
        """Decorate a function: it runs once per name made of its arguments.

        Raises:
            InvalidArgument: the name mentions an unknown argument, or the function is of a wrong kind.
        """
        name_for = name_of_arguments(self.name, function, "once")
        check_kind(function, rt.WRAPPED_KIND)

        @functools.wraps(function)
        def once(*args: P.args, **kwargs: P.kwargs) -> R | S:
            return self._run(name_for(args, kwargs), function, *args, **kwargs)

        return once

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r} on {self._client.where}>"


def _written(name: str, result: object) -> tuple[str, InvalidArgument | None]:
    """Return a result as text, and the reason if it cannot be stored.

    Args:
        name: the run's name.
        result: a value that JSON can represent.
    """
    try:
        text = json.dumps(result)
    except (TypeError, ValueError, RecursionError) as error:
        wrong = f"is not JSON ({error})"
    else:
        if len(text) <= MAX_RESULT_LENGTH:
            return text, None
        wrong = f"has {len(text)} characters as JSON; the limit is {MAX_RESULT_LENGTH}"
    return UNKEPT, InvalidArgument(
        f"The result of {name!r} {wrong}. The run is recorded as done; later callers get NotKept. Return something "
        f"short instead, such as the path of the result."
    )


def _read(name: str, text: str) -> object:
    """Return the result in a text.

    Raises:
        NotKept: the result was not stored.
    """
    if text == UNKEPT:
        raise NotKept(
            f"{name!r} was done, but its result was too large or not JSON, so it was not stored. Continue without "
            f"it, or call locks.forget({name!r}) and run it again."
        )
    return _JSON.decode(text)
