"""What tests of providers share."""

import pytest

from wellkept.testing.provider_contract import Bench


@pytest.fixture
def bench(tmp_path):
    bench = Bench(tmp_path)
    yield bench
    bench.close()
