"""Label maps by name (MNLI to HANS and others)."""

from __future__ import annotations

import numpy as np

from regft_core.evaluate.evaluated import label_indices
from regft_core.kinds import find

CLASSES = find("classification")
MNLI = ["entailment", "neutral", "contradiction"]
HANS = ["entailment", "non-entailment"]
TO_HANS = {"entailment": "entailment", "neutral": "non-entailment", "contradiction": "non-entailment"}


def test_mnli_to_hans_takes_the_argmax_before_merging():
    to_set = label_indices(MNLI, HANS, TO_HANS)
    assert to_set.tolist() == [0, 1, 1]
    logits = np.log(np.array([[0.40, 0.35, 0.25], [0.2, 0.5, 0.3], [0.1, 0.2, 0.7]]))
    predictions, scores = CLASSES.predictions(logits, to_set), CLASSES.scores(logits, to_set, 2)
    assert predictions.tolist() == [0, 1, 1]  # row 0: entailment is the argmax although the others sum to 0.6
    np.testing.assert_allclose(scores, [[0.4, 0.6], [0.2, 0.8], [0.1, 0.9]])
