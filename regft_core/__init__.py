"""regft: regularised fine-tuning of pretrained encoders, declared in YAML.

The library is usable from Python without DVC and without MLflow; ``stages/`` holds the
thin entry points that DVC calls.
"""

import time

__version__ = "0.1.0"

#: When this process began to read the package: what is edited later may not be what it runs (runs/code.py).
LOADED_AT_NS = time.time_ns()
