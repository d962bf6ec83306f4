from django.contrib import admin
from django.urls import include, path

urlpatterns = [path("admin/", admin.site.urls), path("proletarian/", include("django_proletarian.urls"))]
