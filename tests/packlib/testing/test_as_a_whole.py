"""``packlib.testing`` as a module."""

import inspect
import subprocess
import sys

import pytest

from packlib.testing import (
    assert_layer_equal,
    assert_packed_equal,
    assert_padded_equal,
    assert_sequences_equal,
)


def test_it_needs_no_test_runner():
    code = ("import sys; sys.modules['pytest'] = None; import packlib; "
            "assert 'packlib.testing' not in sys.modules; import packlib.testing")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("assertion", [assert_packed_equal, assert_sequences_equal,
                                       assert_padded_equal, assert_layer_equal])
def test_tolerances_are_keywords(assertion):
    parameters = inspect.signature(assertion).parameters
    for name in ("rtol", "atol"):
        assert parameters[name].kind == inspect.Parameter.KEYWORD_ONLY
        assert parameters[name].default is None
