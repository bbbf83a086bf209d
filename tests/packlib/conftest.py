"""Settings of hypothesis, and the helpers beside the tests on the path (pytest imports by file)."""

import sys
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, settings

sys.path.insert(0, str(Path(__file__).parent))

# The same examples on every run, and few: `pytest --hypothesis-profile=search` looks further.
settings.register_profile("repeatable", derandomize=True, deadline=None, max_examples=50,
                          database=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("search", deadline=None, max_examples=1000)
settings.load_profile("repeatable")


@pytest.fixture(autouse=True)
def repeatable():
    torch.manual_seed(0)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # the tensors are small: more threads would wait for each other
    yield
    torch.set_num_threads(threads)
