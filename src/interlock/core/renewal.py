"""The times of renewals: the constants are parts of the ttl unless a unit is given.

A lease is renewed when a third of it has passed.  A request may take another third, so one retry fits.
"""

RENEW_AFTER = 1 / 3  # a holder renews its lease, and a waiter polls, which also renews its lease
ANSWER_WITHIN = 1 / 3  # a request without a reply is sent again
JOIN_WITHIN = 1 / 10  # a lease that is due this soon joins a request for others
BUSY_WITHIN = 1 / 10  # how long a busy line is retried, so that leases of other lines do not suffer
RETRY_AFTER = 1 / 20  # a failed renewal is sent again
MIN_RETRY = 0.02  # seconds
LEFT_AT_RENEWAL = 1 - RENEW_AFTER


def due(deadline: float, ttl: float) -> float:
    """Return when a lease that ends at `deadline` is renewed."""
    return deadline - ttl * LEFT_AT_RENEWAL


def asked_again(now: float, ttl: float, deadline: float) -> float:
    """Return when a renewal sent now is retried without a reply; at most `deadline`."""
    return min(deadline, now + ttl * ANSWER_WITHIN)


def retried(now: float, ttl: float, deadline: float) -> float:
    """Return when a failed renewal is retried; at most `deadline`."""
    return min(deadline, now + max(MIN_RETRY, ttl * RETRY_AFTER))
