"""How often equal deviations are told apart, and a threefold one is found, by Fisher's F and by ``log_ratio``.

nice python benchmarks/deviations.py    # writes results/deviations.json (a minute)
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy.stats import f
from verdicts import RESULTS, write

from regft_core.statistics.reproduction import log_ratio

WORLDS = 2000


def main() -> None:
    rng, rows = np.random.default_rng(0), []
    for scores in ("normal", "t3", "10% collapse", "20% collapse"):
        for seeds in (5, 6, 10, 20):
            draws = rng.standard_t(3, (2, WORLDS, seeds)) if scores == "t3" else rng.standard_normal((2, WORLDS, seeds))
            if "collapse" in scores:
                draws = np.where(rng.random(draws.shape) < int(scores[:2]) / 100, -8.0, draws)
            row: dict[str, Any] = {"scores": scores, "seeds": seeds, "worlds": WORLDS}
            for name, factor in (("", 1.0), ("_finds", 3.0)):
                ratio = np.log(factor * draws[0].std(axis=1, ddof=1) / draws[1].std(axis=1, ddof=1))
                half = 0.5 * math.log(f.ppf(0.975, seeds - 1, seeds - 1))
                robust = np.array([log_ratio(factor * a, b)[1:] for a, b in zip(*draws, strict=True)])
                told = [np.abs(ratio) > half, (robust[:, 0] > 0) | (robust[:, 1] < 0)]
                row[f"f{name}"], row["now" if not name else "finds"] = (round(float(one.mean()), 4) for one in told)
            rows.append(row)
    write(RESULTS / "deviations.json", rows)


if __name__ == "__main__":
    main()
