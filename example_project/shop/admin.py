from django.contrib import admin

from shop.models import Order, Payment, Product, Receipt, Report


@admin.register(Product)
class ProductAdmin(admin.ModelAdmin):  # type: ignore[type-arg] # generic in the stubs only
    list_display = ("name", "price", "stock")


@admin.register(Order)
class OrderAdmin(admin.ModelAdmin):  # type: ignore[type-arg] # generic in the stubs only
    list_display = ("__str__", "email", "product", "quantity", "status", "placed_at")
    list_filter = ("status", "product")
    list_select_related = ("product",)


admin.site.register([Receipt, Payment, Report])
