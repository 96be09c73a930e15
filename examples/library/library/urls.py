"""The addresses of the site."""

from django.contrib import admin
from django.urls import include, path
from rest_framework.routers import DefaultRouter

from catalogue import api, views

router = DefaultRouter()
router.register("books", api.BookViewSet)
router.register("copies", api.CopyViewSet)
router.register("readers", api.ReaderViewSet)
router.register("loans", api.LoanViewSet)
router.register("reservations", api.ReservationViewSet)

admin.site.site_header = admin.site.site_title = "Library"

urlpatterns = [
    path("", views.BookList.as_view(), name="books"),
    path("books/<int:pk>/", views.BookPage.as_view(), name="book"),
    path("books/<int:pk>/reserve/", views.reserve, name="reserve"),
    path("copies/<int:pk>/borrow/", views.borrow, name="borrow"),
    path("copies/<int:pk>/return/", views.give_back, name="return"),
    path("reservations/<int:pk>/cancel/", views.cancel, name="cancel"),
    path("api/", include(router.urls)),
    path("api-auth/", include("rest_framework.urls")),
    path("admin/", admin.site.urls),
]
