"""The course, for nbgrader's ordinary commands.

cd exercises && nbgrader generate_assignment ps2_pack_and_unpack
"""

import os
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
# Appended, not inserted: nothing in this folder may shadow an installed module.
if str(HERE) not in sys.path:
    sys.path.append(str(HERE))

from feedback import FEEDBACK_STEPS, SafeHTMLExporter  # noqa: E402  (needs the line above)
from running import AUTOGRADE_STEPS  # noqa: E402

# nbgrader calls the program `alembic`, which lies beside this Python and not always on the path.
os.environ["PATH"] = os.pathsep.join(
    [str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)]
)

TEST_SECONDS = 20
IMPORT_SECONDS = (
    90  # the first import of torch on a cold disk is slow, and is not the student's fault
)


def seconds_for(cell):
    """How long a cell may run."""
    return IMPORT_SECONDS if "import torch" in cell.source else TEST_SECONDS


c = get_config()  # noqa: F821  (nbgrader puts it here)

c.CourseDirectory.course_id = "packing"
c.CourseDirectory.root = str(HERE)

# An endless loop costs its own cell, not the submission: the kernel is interrupted and goes on.
c.Execute.timeout_func = seconds_for
c.Execute.interrupt_on_timeout = True
c.Execute.error_on_timeout = {
    "ename": "CellTimeoutError",
    "evalue": f"stopped after {TEST_SECONDS} s",
    "traceback": [f"CellTimeoutError: stopped after {TEST_SECONDS} s"],
}
c.Execute.iopub_timeout = 20  # the default, 4 s, loses whole submissions on a busy machine
c.Execute.shutdown_kernel = "immediate"
c.Execute.extra_arguments = [
    "--log-level=ERROR"
]  # one line per kernel on the terminal says enough, none is better

# A test that the student deleted comes back; else its points would stay open for ever.
c.OverwriteCells.add_missing_cells = True

# nbgrader gives no points to a test that writes to stderr, and a warning is no mistake.
c.IgnorePattern.enabled = True
c.IgnorePattern.pattern = r"(?s)."

c.Autograde.autograde_preprocessors = AUTOGRADE_STEPS
c.GenerateFeedback.preprocessors = FEEDBACK_STEPS
c.GenerateFeedback.exporter_class = SafeHTMLExporter
c.HTMLExporter.exclude_anchor_links = True
