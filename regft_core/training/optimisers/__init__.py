"""Optimisers, one file each; ``training.optimizer`` names the file (``regft_core/catalogue.py`` finds it).

A file defines ``build(groups, training)``. ``groups`` are those of ``training.optim.parameter_groups``,
each with its own ``lr`` and ``weight_decay``, which the optimiser must honour; ``training`` is the
protocol, whose ``betas`` and ``epsilon`` all optimisers share. Weight decay is decoupled.
"""
