"""regft: regularised fine-tuning of pretrained encoders, declared in YAML.

The library is usable from Python without DVC and without MLflow; ``stages/`` holds the
thin entry points that DVC calls.
"""

__version__ = "0.1.0"
