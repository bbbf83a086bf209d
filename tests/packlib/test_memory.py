"""Lists are packed and unpacked without a padded grid: memory follows the sum of lengths."""

import subprocess
import sys

import pytest

# In a process of its own, whose peak nothing else has raised. A padded grid would take 25.6 GB.
SCRIPT = """
import re, torch, packlib

def megabytes(name):
    return int(re.search(name + r":\\s+(\\d+) kB", open("/proc/self/status").read())[1]) // 1024

packlib.unpack_sequence(packlib.pack_sequence([torch.zeros(2, 64), torch.zeros(1, 64)]))
sequences = [torch.randn(n, 64) for n in [100_000, *[10] * 999]]
open("/proc/self/clear_refs", "w").write("5")  # the peak starts again from here
before = megabytes("VmRSS")
packed = packlib.pack_sequence(sequences, enforce_sorted=False)
pieces = packlib.unpack_sequence(packed)
assert len(packed.data) == 109_990 and all(map(torch.equal, pieces, sequences))
print(megabytes("VmHWM") - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the peak is read from Linux's /proc")
def test_one_long_and_many_short_sequences_stay_below_200_megabytes():
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert 28 <= int(done.stdout) < 200  # megabytes; the packed rows alone are 28
