"""An estimate of a server's clock, for stores whose server reports its time but cannot compare it in a write."""

from interlock.runtime import clock

STALE = 600.0  # seconds after which a sample must be repeated
DRIFT = 1e-4  # seconds by which two clocks may drift apart in one second


class ServerClock:
    """Bounds of the difference between a server's clock and `clock.awake_or_not`, in seconds.

    A server reports its time to the second. That time, and the moments at which this process sent the request and
    received the reply, give an upper and a lower bound; each sample narrows them.

    Args:
        margin: seconds added to the error, for several machines behind one address, and for times that the server
            caches.
    """

    def __init__(self, margin: float) -> None:
        self._margin = margin
        self._bounds = -1e18, 1e18, -1e18  # low, high, and the time of the last sample; replaced as a whole

    def saw(self, earliest: float, latest: float, sent: float, received: float) -> None:
        """Narrow the bounds by a sample.

        Args:
            earliest, latest: bounds of the server's time of day at a moment between the next two, in seconds.
            sent, received: the time of the request and of its reply, by `clock.awake_or_not`.
        """
        low, high, at = self._bounds
        drift = DRIFT * max(0.0, received - at)
        low, high = low - drift, high + drift
        lowest, highest = earliest - received, latest - sent
        if received - at > STALE or lowest > high + self._margin or highest < low - self._margin:
            low, high = lowest, highest  # the old bounds are outdated, or one of the clocks was set
        low, high = max(low, lowest), min(high, highest)
        self._bounds = min(low, high), max(low, high), max(at, received)

    @property
    def age(self) -> float:
        """Seconds since the last sample."""
        return clock.awake_or_not() - self._bounds[2]

    @property
    def ahead(self) -> float:
        """Seconds by which the server's clock is ahead of `clock.awake_or_not`."""
        low, high, _ = self._bounds
        return (low + high) / 2

    @property
    def error(self) -> float:
        """The maximum error of `ahead` in seconds; read it before `ahead`, which a sample may improve in between."""
        low, high, at = self._bounds
        return (high - low) / 2 + DRIFT * (clock.awake_or_not() - at) + self._margin
