"""Fields with descriptors of other libraries: the attribute's value may differ from the column's."""

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from guarded.helpers import refused, save, sql_of
from guarded.library.models import Shouted

from interlock.django.guarded import changes


@pytest.mark.parametrize("fetched", [False, True], ids=["created", "fetched"])
def test_one_writer_saves_the_same_instance_again_and_again(fetched: bool) -> None:
    shouted = Shouted.objects.create(text="old")
    instance = Shouted.objects.get(pk=shouted.pk) if fetched else shouted
    for text in ("one", "two", "two", "three"):
        instance.text = text
        instance.number += 1
        instance.save()
        assert changes(instance) == {}
    instance.refresh_from_db()
    save(instance, text="four")
    assert Shouted.objects.values_list("text", "number").get() == ("FOUR", 4)


def test_what_nobody_has_set_is_not_written() -> None:
    Shouted.objects.create(text="old")
    Shouted.objects.update(text="as nobody shouts")
    mine, theirs = Shouted.objects.get(), Shouted.objects.get()
    save(theirs, text="theirs")
    sql = sql_of(save, mine, number=1)
    assert len(sql) == 1
    assert "text" not in sql[0]
    assert Shouted.objects.values_list("text", "number").get() == ("THEIRS", 1)


def test_two_that_write_it_are_in_conflict() -> None:
    Shouted.objects.create(text="old")
    mine, theirs = Shouted.objects.get(), Shouted.objects.get()
    save(theirs, text="theirs")
    assert refused(save, mine, text="mine").fields["text"].theirs == "THEIRS"


@pytest.mark.skipif(find_spec("modeltranslation") is None, reason="django-modeltranslation is not installed")
def test_django_modeltranslation() -> None:
    script = Path(__file__).with_name("translated_site.py")
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "translated\n"
