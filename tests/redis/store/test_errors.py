"""What a refusal of the server means."""

import pytest

from interlock._redis.errors import ADVICE, code_of

UNKNOWN = "ERR unknown command 'EVALSHA', with args beginning with: '90c1' '1' '{}'"


@pytest.mark.parametrize("name", ["no permission", "attempt to script", "unauthenticated", "non local key", *ADVICE])
def test_the_name_of_a_lock_is_not_taken_for_a_code(name: str) -> None:
    assert code_of(Exception(UNKNOWN.format(name))) == "UNKNOWN"
