"""Texts as weighted counts of words and characters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from regft_core.data.examples import Example
from regft_core.errors import RunFailed
from regft_core.lazy import Array, np, sparse

#: Words of one character count too (negations, pronouns, digits); scikit-learn drops them by default.
WORD = r"(?u)\b\w+\b"


@dataclass
class BagOfWords:
    """TF-IDF of word and character n-grams.

    One block per kind of n-gram, each of length 1 (as in scikit-learn: smoothed idf, natural logarithm). Of a
    pair, the features are those of both texts, their product entry by entry (what they share) and its sum (the
    cosine of each block, added up).

    Attributes:
        blocks: ``analyzer`` (word, char_wb), ``longest`` n-gram, ``sublinear`` where counts are, and ``terms`` in the
            order of the columns.
        idf: inverse document frequency of every term of every block, one block after the other.
    """

    blocks: list[dict[str, Any]]
    idf: Array

    @classmethod
    def fit(
        cls, examples: Sequence[Example], *, words: int, characters: int, limit: int, sublinear: bool = False
    ) -> BagOfWords:
        """The terms of these texts; every text, also the second of a pair, is one document.

        Args:
            words, characters: longest n-gram; 0 leaves the block out.
            limit: most frequent terms of each block that are kept.
            sublinear: a term that occurs n times counts 1 + log(n), not n.

        Raises RunFailed when the texts hold no term at all.
        """
        texts = [text for example in examples for text in (example.text, example.text_pair) if text is not None]
        blocks, weights = [], []
        for analyzer, longest in (("word", words), ("char_wb", characters)):
            if not longest:
                continue
            vectoriser = _vectoriser(analyzer, longest, sublinear, max_features=limit)
            try:
                vectoriser.fit(texts)
            except ValueError as error:  # scikit-learn: empty vocabulary
                message = f"tfidf: no {analyzer} n-gram occurs in the training rows ({error})"
                hint = "add rows with words, or count characters (tfidf_logistic_characters)"
                raise RunFailed("nothing-to-count", f"{message}\n    -> {hint}") from error
            terms = [str(term) for term in vectoriser.get_feature_names_out()]
            told = {"sublinear": True} if sublinear else {}
            blocks.append({"analyzer": analyzer, "longest": longest, **told, "terms": terms})
            weights.append(np.asarray(vectoriser.idf_, dtype=np.float64))
        return cls(blocks, np.concatenate(weights))

    def features(self, examples: Sequence[Example]) -> Any:
        """Sparse features [n, d] of single texts, [n, 3d + 1] of pairs."""
        first = self._texts([example.text for example in examples])
        second_texts = [example.text_pair for example in examples if example.text_pair is not None]
        if not second_texts:
            return first
        second = self._texts(second_texts)
        shared = first.multiply(second).tocsr()
        cosine = sparse.csr_matrix(np.asarray(shared.sum(axis=1)).reshape(-1, 1))
        return sparse.hstack([first, second, shared, cosine], format="csr")

    def widths(self, columns: int) -> list[int]:
        """Columns of each part of so many ``features``, in their order: one block of one text, or of both."""
        sizes = [len(block["terms"]) for block in self.blocks]
        return sizes if columns == sum(sizes) else [*sizes * 3, 1]

    def _texts(self, texts: Sequence[str]) -> Any:
        parts, start = [], 0
        for block in self.blocks:
            options = {"vocabulary": block["terms"]}
            vectoriser = _vectoriser(block["analyzer"], block["longest"], block.get("sublinear", False), **options)
            vectoriser.idf_ = self.idf[start : start + len(block["terms"])]
            start += len(block["terms"])
            parts.append(vectoriser.transform(texts))
        return sparse.hstack(parts, format="csr")


def _vectoriser(analyzer: str, longest: int, sublinear: bool, **options: Any) -> Any:
    from sklearn.feature_extraction.text import TfidfVectorizer

    if analyzer == "word":
        options["token_pattern"] = WORD
    return TfidfVectorizer(analyzer=analyzer, ngram_range=(1, longest), sublinear_tf=sublinear, **options)
