"""What whoever started the tests may have left to them, put right: signals that are ignored or blocked."""

import signal
from types import FrameType

LEFT_ALONE = {signal.SIGHUP, signal.SIGQUIT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2, signal.SIGTSTP}


def take_signals_as_at_a_terminal() -> None:
    """Let the tests' processes find signals as a shell at a terminal leaves them: `nohup`, `&` and cron do not.

    The tests themselves go on to pass over what they were to ignore, so that nohup still works; but a handler, other
    than an ignored signal, is not inherited by the programs that they start.  SIGINT is Python's KeyboardInterrupt.
    """
    signal.pthread_sigmask(signal.SIG_UNBLOCK, signal.valid_signals())
    for number in LEFT_ALONE:
        if signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, _pass_over)
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if signal.getsignal(signal.SIGCHLD) == signal.SIG_IGN:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)


def _pass_over(number: int, frame: FrameType | None) -> None:
    """Do nothing."""
