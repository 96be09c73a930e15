"""The URLs of the pages."""

from django.contrib import admin
from django.urls import include, path
from drf_spectacular.views import SpectacularAPIView
from guarded.library import views
from rest_framework.routers import DefaultRouter

router = DefaultRouter()
for name, viewset in {
    "plain": views.PlainBooks,
    "books": views.GuardedBooks,
    "shelved": views.ShelvedBooks,
    "strict": views.StrictBooks,
    "tagless": views.TaglessBooks,
    "occupied": views.OccupiedBooks,
    "locked": views.LockedBooks,
    "counters": views.Counters,
}.items():
    router.register(name, viewset, basename=name)

urlpatterns = [
    path("admin/", admin.site.urls),
    path("api/", include(router.urls)),
    path("schema/", SpectacularAPIView.as_view(), name="schema"),
]
