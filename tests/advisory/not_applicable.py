"""What of the contract does not apply to advisory locks: they have no semaphores, and these tests play with some."""

NOT_APPLICABLE = {
    "test_a_big_request_at_the_head_is_not_overtaken",
    "test_a_lost_grant_above_a_held_one_is_not_mistaken_for_it",
    "test_all_that_are_evicted_together_are_told",
    "test_a_semaphore_admits_as_many_units_as_it_has_permits",
    "test_claims_tell_the_thread_or_task",
    "test_claims_that_disagree_are_bound_by_the_smallest_capacity",
    "test_evict_counts_what_it_removed",
    "test_evicting_one_does_not_disturb_the_others",
    "test_fences_increase_over_all_kinds_of_one_name",
    "test_fences_of_those_who_share_differ_and_increase",
    "test_kinds_can_be_mixed",
    "test_lock_release_releases_what_the_caller_acquired_last",
    "test_never_more_holders_than_permits",
    "test_one_lock_object_keeps_the_grants_of_all_who_use_it_apart",
    "test_one_release_of_many_units_lets_several_in",
    "test_when_the_smallest_capacity_leaves_the_next_one_counts",
}
"""Tests."""

NOT_APPLICABLE_WITH = {
    "test_a_claim_tells_its_kind": "semaphore 2/3",
    "test_no_update_of_an_unprotected_counter_is_lost": "semaphore, all permits",
}
"""Tests with one of their parameters."""


WITH_READERS = {
    "test_a_try_does_not_barge_past_waiters",
    "test_the_timeout_is_counted_over_all_wakeups",
    "test_when_the_head_gives_up_those_behind_who_fit_get_in",
    "test_when_the_head_is_evicted_those_behind_who_fit_get_in",
}
"""Tests with readers, which GET_LOCK does not have."""


def applies(name: str, parameters: str) -> bool:
    """Tell whether a test of the contract is played on advisory locks."""
    if "mysql+advisory" in parameters and (name in WITH_READERS or "reader" in parameters or "writer" in parameters):
        return False
    without = NOT_APPLICABLE_WITH.get(name)
    return name not in NOT_APPLICABLE and (without is None or without not in parameters)
