"""Something to sell."""

from typing import Any

from django.db import migrations


def stock_the_shelf(apps: Any, schema_editor: Any) -> None:
    products = [("Coffee, 500 g", "8.50", 100), ("Tea, 100 g", "6.00", 100), ("Mug", "12.00", 3)]
    product = apps.get_model("shop", "Product")
    product.objects.bulk_create(product(name=name, price=price, stock=stock) for name, price, stock in products)


def clear_the_shelf(apps: Any, schema_editor: Any) -> None:
    apps.get_model("shop", "Product").objects.all().delete()


class Migration(migrations.Migration):
    dependencies = [("shop", "0001_initial")]
    operations = [migrations.RunPython(stock_the_shelf, clear_the_shelf)]
