"""regft: regularised fine-tuning of pretrained encoders, declared in YAML."""

import time

__version__ = "0.1.0"

#: When this process began to read the package: what is edited later may not be what it runs (runs/code.py).
LOADED_AT_NS = time.time_ns()
