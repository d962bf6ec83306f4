from django.db import transaction

from django_proletarian import enqueue
from tests.conftest import rows


def test_a_rolled_back_enqueue_leaves_no_row(committed: None) -> None:
    with transaction.atomic():
        enqueue("tests/append", 1)
        transaction.set_rollback(True)
    assert rows("proletarian.job") == []
