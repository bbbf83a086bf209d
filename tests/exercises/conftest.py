"""Puts the course's scripts on the path, and what these tests share."""

import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
for folder in (ROOT / "exercises", ROOT / "tests" / "exercises"):
    if str(folder) not in sys.path:
        sys.path.append(str(folder))

# nbgrader calls the program `alembic`, which lies beside this Python and not always on the path.
os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
