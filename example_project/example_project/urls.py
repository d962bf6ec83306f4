from django.contrib import admin
from django.urls import path

from shop import views

urlpatterns = [
    path("", views.index, name="index"),
    path("orders/new/", views.new_order, name="new-order"),
    path("reports/new/", views.new_report, name="new-report"),
    path("admin/", admin.site.urls),
]
