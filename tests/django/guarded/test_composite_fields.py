"""Values of several columns: they are never merged column by column; fields that convert what they save."""

from typing import Any

import pytest
from django.contrib.contenttypes.models import ContentType
from django.db.models import F
from django.test.utils import isolate_apps
from guarded.helpers import refused, save, sql_of
from guarded.library.models import Author, Book, CarelessPlace, CountedPlace, Place, Publication
from guarded.pages import page_of

from interlock.django.guarded import changes, state_tag, written
from interlock.django.guarded.forms import GuardedModelForm


@pytest.fixture
def place() -> Place:
    return Place.objects.create(name="naem", lat=1, lon=1)


def both(model: Any = Place) -> tuple[Any, Any]:
    return model.objects.get(), model.objects.get()


class TestGuardedTogether:
    def test_two_that_change_two_columns_of_one_value_conflict(self, place: Place) -> None:
        mine, theirs = both()
        save(theirs, lat=2)
        assert set(refused(save, mine, lon=2).fields) == {"lat"}
        assert Place.objects.values_list("lat", "lon").get() == (2, 1)

    def test_other_fields_are_still_merged(self, place: Place) -> None:
        mine, theirs = both()
        save(theirs, lat=2)
        save(mine, name="name")
        assert Place.objects.values_list("lat", "lon", "name").get() == (2, 1, "name")

    def test_the_unchanged_column_is_compared_and_not_written(self, place: Place) -> None:
        mine, _ = both()
        (update,) = sql_of(save, mine, lat=5)
        values, _, condition = update.partition("WHERE")
        assert "lon" in condition
        assert "lon" not in values
        assert written(mine) == {"lat"}

    def test_named_fields_of_a_save_are_compared_with_the_rest(self, place: Place) -> None:
        mine, theirs = both()
        save(theirs, lat=2)
        mine.lon = 2
        assert set(refused(mine.save, update_fields=["lon"]).fields) == {"lat"}

    def test_an_expression_is_compared_with_the_rest(self, place: Place) -> None:
        mine, theirs = both()
        save(theirs, lat=2)
        assert set(refused(save, mine, lon=F("lon") + 1).fields) == {"lat"}

    def test_a_merge_of_one_column_is_allowed(self, place: Place) -> None:
        mine, theirs = both(CountedPlace)
        save(theirs, lat=2)
        save(mine, lat=3)
        assert Place.objects.values_list("lat", "lon").get() == (4, 1)

    @pytest.mark.parametrize("values", [{"lon": 2}, {"lat": 3, "lon": 3}])
    def test_a_merge_of_two_columns_is_not(self, place: Place, values: dict[str, float]) -> None:
        mine, theirs = both(CountedPlace)
        save(theirs, lat=2)
        assert set(refused(save, mine, **values).fields) == {"lat"}

    def test_the_last_wins_with_the_whole_value(self, place: Place) -> None:
        mine, theirs = both(CarelessPlace)
        save(theirs, lat=2)
        save(mine, lon=3)
        assert Place.objects.values_list("lat", "lon").get() == (1, 3)

    def test_the_tag_of_one_column_changes_with_the_others(self, place: Place) -> None:
        before = state_tag(Place.objects.get(), ["lat"])
        Place.objects.update(lon=2)
        assert state_tag(Place.objects.get(), ["lat"]) != before

    @pytest.mark.parametrize("group", [("name",), ("name", "missing"), ("name", "pages")])
    def test_a_group_that_makes_no_sense_is_found_by_the_check(self, group: tuple[str, ...]) -> None:
        with isolate_apps("guarded.library"):

            class Wrong(Publication):
                guarded_together = [group]

                class Meta:
                    app_label = "library"

        assert [each.id for each in Wrong.check() if each.id.startswith("interlock")] == ["interlock.E103"]
        assert not [each for each in Place.check() if each.id.startswith("interlock")]


def test_a_generic_foreign_key_is_one_value(place: Place) -> None:
    author, book = Author.objects.create(name="Ann"), Book.objects.create(name="a")
    save(place, about=author)
    mine, theirs = both()
    save(theirs, about_id=author.pk + 1)
    conflicts = refused(save, mine, about_type=ContentType.objects.get_for_model(book)).fields
    assert set(conflicts) == {"about_id"}


class PlaceForm(GuardedModelForm):
    class Meta:
        model = Place
        fields = ["lat", "lon", "name"]


class LatForm(GuardedModelForm):
    class Meta:
        model = Place
        fields = ["lat"]


class TestForms:
    def late(self, form: Any, theirs: dict[str, float], mine: dict[str, str]) -> Any:
        page = {**page_of(form(instance=Place.objects.get())), **mine}
        Place.objects.update(**theirs)
        return form(page, instance=Place.objects.get())

    def test_two_users_that_change_two_columns_see_both_values(self, place: Place) -> None:
        form = self.late(PlaceForm, {"lat": 2}, {"lon": "3"})
        assert set(form.errors) == {"lat"}
        again = PlaceForm({**page_of(form), "lon": "3", "interlock_keep_lat": "theirs"}, instance=Place.objects.get())
        assert again.is_valid(), again.errors
        again.save()
        assert Place.objects.values_list("lat", "lon").get() == (2, 3)

    def test_an_untouched_value_keeps_what_it_has_now(self, place: Place) -> None:
        form = self.late(PlaceForm, {"lat": 2}, {"name": "name"})
        assert form.is_valid(), form.errors
        form.save()
        assert Place.objects.values_list("lat", "lon", "name").get() == (2, 1, "name")

    def test_a_column_that_the_form_lacks_counts_too(self, place: Place) -> None:
        assert set(self.late(LatForm, {"lon": 2}, {"lat": "3"}).errors) == {"lat"}

    def test_it_does_not_count_if_nothing_of_the_value_is_touched(self, place: Place) -> None:
        assert self.late(LatForm, {"lon": 2}, {}).is_valid()


class TestFieldsThatConvert:
    def test_the_second_writer_is_refused(self, place: Place) -> None:
        mine, theirs = both()
        tag = state_tag(theirs)
        theirs.country = "fr"
        assert changes(theirs) == {"country": ("DE", "fr")}
        theirs.save()
        assert changes(theirs) == {}
        assert state_tag(theirs) != tag
        assert refused(save, mine, country="us").fields["country"].theirs == "FR"

    def test_what_converts_to_the_same_value_is_not_written(self, place: Place) -> None:
        mine, theirs = both()
        save(theirs, country="fr")
        save(mine, country="de", name="name")
        assert written(mine) == {"name"}
        assert Place.objects.values_list("country", "name").get() == ("FR", "name")
