"""When leases are renewed: the numbers, as parts of the ttl unless a unit is given, and the times that follow.

A lease is renewed when a third of it is over.  A request may take another third: one more fits before the end.
"""

RENEW_AFTER = 1 / 3  # a holder renews its lease then, and a waiter asks again, which extends its lease too
ANSWER_WITHIN = 1 / 3  # a request that has no answer then is sent again
JOIN_WITHIN = 1 / 10  # a lease that is due so soon goes along in a request for others
BUSY_WITHIN = 1 / 10  # a busy line is tried for so long: the leases of other lines must not suffer
RETRY_AFTER = 1 / 20  # a renewal that failed is sent again then
MIN_RETRY = 0.02  # seconds
LEFT_AT_RENEWAL = 1 - RENEW_AFTER


def due(deadline: float, ttl: float) -> float:
    """Return when a lease that ends at `deadline` is renewed."""
    return deadline - ttl * LEFT_AT_RENEWAL


def asked_again(now: float, ttl: float, deadline: float) -> float:
    """Return when a renewal that is sent now is sent again if it has no answer; at `deadline` at the latest."""
    return min(deadline, now + ttl * ANSWER_WITHIN)


def retried(now: float, ttl: float, deadline: float) -> float:
    """Return when a renewal that failed is sent again; at `deadline` at the latest."""
    return min(deadline, now + max(MIN_RETRY, ttl * RETRY_AFTER))
