"""The keys on the server: every name has its own, in one slot, and can be read back."""

from hypothesis import given
from hypothesis import strategies as some

from interlock._redis.keys import key_of, keys_of_line, line_of
from interlock.core.claims import SEPARATOR

TEXT = some.text(
    some.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=20
) | some.sampled_from(["}", "{", "%", "%7D", "a}b{c}", ":", "a:b", "%25", "{}", "}{"])


@given(TEXT, TEXT)
def test_a_key_can_be_read_back(namespace: str, name: str) -> None:
    key = namespace + SEPARATOR + name
    assert key_of(line_of(key)) == key


@given(TEXT, TEXT, TEXT, TEXT)
def test_two_names_never_share_a_key(namespace: str, name: str, other_space: str, other: str) -> None:
    same = (namespace, name) == (other_space, other)
    assert (line_of(namespace + SEPARATOR + name) == line_of(other_space + SEPARATOR + other)) is same


@given(TEXT, TEXT)
def test_all_keys_of_a_name_have_one_hash_tag(namespace: str, name: str) -> None:
    tags = {key.partition("{")[2].partition("}")[0] for key in keys_of_line(line_of(namespace + SEPARATOR + name))}
    assert len(tags) == 1
    assert tags != {""}  # an empty tag is none


def test_a_plain_name_stays_readable() -> None:
    assert line_of("shop" + SEPARATOR + "book:1") == "interlock:{shop:book:1}"
