from django import forms

from shop.models import Order


class OrderForm(forms.ModelForm):  # type: ignore[type-arg] # generic in the stubs only
    class Meta:
        model = Order
        fields = ("email", "product", "quantity")
