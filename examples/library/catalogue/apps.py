"""The app of the catalogue and the lending desk."""

from django.apps import AppConfig


class CatalogueConfig(AppConfig):
    """Books, copies, readers, loans and reservations."""

    name = "catalogue"
    verbose_name = "Library"
