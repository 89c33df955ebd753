"""What tests of providers share."""

import pytest

from kept.testing.provider_bench import Bench


@pytest.fixture
def bench(tmp_path):
    bench = Bench(tmp_path)
    yield bench
    bench.close()
