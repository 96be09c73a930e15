"""Reset signals that the process which started the tests has ignored or blocked."""

import signal
from types import FrameType

LEFT_ALONE = {signal.SIGHUP, signal.SIGQUIT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2, signal.SIGTSTP}


def take_signals_as_at_a_terminal() -> None:
    """Set signals as a shell at a terminal does, for the programs that the tests start; `nohup`, `&` and cron do not.

    The test process itself still ignores the signals that it should ignore, so that nohup works: it gets a handler
    that does nothing, which, unlike an ignored signal, is not inherited.  SIGINT raises KeyboardInterrupt.
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
