# Generated from _async/pipe_waiter.py by tools/unasync.py; change that one.
"""A waiter that reads a named pipe."""

from interlock.core.queue import Granted
from interlock.runtime import _threads as rt
from interlock.stores.files.pipes import BasePipeWaiter


class PipeWaiter(BasePipeWaiter):
    """A waiter that also wakes when a process before it in the line dies."""

    __slots__ = ()

    def wait(self, seconds: float) -> Granted | None:
        """Wait until notified, until a watched process dies, or until `seconds` have passed."""
        pipe = self.pipe
        from_pipe = None
        if self._message is None:
            watched = {each.fd: token for token, each in pipe.watched.items()}
            ready = rt.readable(pipe.fd, watched, seconds)
            if pipe.fd in ready:
                from_pipe = pipe.read()
            # A process that has slept runs slowly, so do no more than this after a plain notification.
            if len(ready) > (pipe.fd in ready):  # because the pipe of a dead process would be ready forever
                pipe.unwatch([token for fd, token in watched.items() if fd in ready])
        message, self._message = self._message, None
        return from_pipe if message is None else message
