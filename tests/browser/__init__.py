import pytest

pytest.register_assert_rewrite("tests.browser.visitor", "tests.browser.shop")
