"""The executors that there are beside the serial one, for tests that compare them with it."""

from __future__ import annotations

import pytest

#: ``executor``, the ``package`` that it needs (``tests.extras``), and its ``options`` in params.yaml.
on_other_executors = pytest.mark.parametrize(
    ("executor", "package", "options"),
    [
        ("processes", "multiprocessing", {}),
        pytest.param("ray", "ray", {"ray": {"cpus": 1.0}}, marks=pytest.mark.slow),
        pytest.param("slurm", "submitit", {"slurm": {"cluster": "local"}}, marks=pytest.mark.slow),
    ],
)
