import pytest
from django_proletarian.testing import run_jobs
@pytest.mark.django_db
def test_it():
    from tests.app.tasks import add, add_later, succeed_at, attempt_number, fail
    r = add.enqueue(1, b=2); print(r)
    print(run_jobs()); r.refresh(); print(r, r.return_value)
    r = add_later.enqueue(1, 2); run_jobs(); r.refresh(); print(r.return_value, r)
    r = succeed_at.enqueue(3); run_jobs(raise_errors=False); r.refresh(); print(r.return_value, r)
    r = fail.enqueue(3); run_jobs(raise_errors=False); r.refresh(); print(r)
