"""Schedules of the learning rate, one file each; ``training.schedule`` names the file (``catalogue.py`` finds it).

A file defines ``factor(progress)``: what the rate is multiplied by when ``progress`` of the steps after warm-up are
done, from 0 to below 1. Warm-up is the same for all (``training.optim.rate_factor``).
"""
