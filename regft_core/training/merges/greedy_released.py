"""A greedy soup as in the released code: a member is kept only if the score of the mean rises."""

from functools import partial

from regft_core.training.merges import greedy

SCORES = True
VARIANT = "released"
merge = partial(greedy.merge, keeps_ties=False)
