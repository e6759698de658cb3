"""Promises of what people write themselves, tried on the spot: ``regft test-method``.

``check.py`` tries a regulariser in a project of its own (``trial.py``) with a tiny encoder (``tiny.py``); ``laws.py``
and ``strength.py`` hold the laws of one phase, which the repository's tests try on every family of encoders.
"""
