"""Write the tests' tiny encoder. python tests/wheel/tiny_encoder.py REPOSITORY FOLDER"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, sys.argv[1])

from tests.tiny import tiny_model_dir

with tempfile.TemporaryDirectory() as scratch:
    shutil.copytree(tiny_model_dir(Path(scratch), "bert"), sys.argv[2])
