"""Histogram of the confidence that a method has learned for tokens (TDT, Zeng et al. 2022, figure 4).

Over the text's tokens of every set; added tokens such as [CLS] and padding are left out. The table ``tokens`` has the
confidence of each token of some texts, which MLflow shows and the report does not list.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Any

from pydantic import Field

from regft_core.evaluate.analysis_result import Findings, Plot, Table, Unfit
from regft_core.lazy import np
from regft_core.schema import StrictModel

if TYPE_CHECKING:
    import numpy.typing as npt

    from regft_core.evaluate.evaluated import EvaluatedRun, EvaluatedSet

DESCRIPTION = "how sure a method with a confidence per token is of the tokens (TDT, figure 4)"
NEEDS_MODEL = True


class Config(StrictModel):
    bins: int = Field(20, ge=2, le=1000, description="of equal width between 0 and 1")
    rows: int = Field(200, ge=1, description="examples of a set, the same for all runs; all when it has fewer")
    texts: int = Field(20, ge=0, description="examples of a set whose tokens are in the table `tokens`")


def run(run: EvaluatedRun) -> Findings:
    scalars: dict[str, dict[str, float]] = {}
    tables: dict[str, dict[str, Table]] = {}
    for judged in run.sets.values():
        values = of_tokens(run, run.some(judged, run.options.rows))
        if not len(values):
            continue
        scalars[judged.name] = {"mean": float(values.mean()), "sd": float(values.std()), "tokens": float(len(values))}
        tables[judged.name] = {"histogram": histogram(values, run.options.bins)}
        if run.options.texts:
            tables[judged.name]["tokens"] = by_token(run, run.some(judged, run.options.texts))
    return Findings(scalars, tables, {"mean": (0.0, 1.0), "sd": (0.0, 0.5), "tokens": (0.0, None)})


def of_tokens(run: EvaluatedRun, judged: EvaluatedSet) -> npt.NDArray[Any]:
    """[tokens] confidence of all text tokens of a set; raises Unfit where no method has learned one."""
    from regft_core.evaluate.hidden import embedding_output

    encoded = run.trained.encode(judged.examples)
    found = []
    for batch in run.trained.batches(encoded):
        values = run.trained.confidence(embedding_output(run.trained.model, batch))
        if values is None:
            raise Unfit("no method here learns a confidence per token")
        found.append(values[batch.special_mask == 0].cpu().numpy().astype(np.float64))
    return np.concatenate(found)


def by_token(run: EvaluatedRun, judged: EvaluatedSet) -> Table:
    """The tokens of all texts of a set with their confidence; a text in windows has its tokens window by window."""
    from regft_core.evaluate.hidden import embedding_output

    trained, encoded = run.trained, run.trained.encode(judged.examples)
    values: dict[int, npt.NDArray[Any]] = {}
    for batch in trained.batches(encoded):
        found = trained.confidence(embedding_output(trained.model, batch))
        assert found is not None  # of_tokens has raised before
        counts = [sum(map(len, encoded.rows_of("input_ids", index))) for index in batch.indices.tolist()]
        parts = found[batch.attention_mask.bool()].cpu().split(counts)
        values |= dict(zip(batch.indices.tolist(), parts, strict=True))
    rows = []
    for index, example in enumerate(judged.examples):
        ids, added = (chain.from_iterable(encoded.rows_of(name, index)) for name in ("input_ids", "special_mask"))
        tokens = trained.tokenizer.convert_ids_to_tokens(list(ids))
        of_text = zip(tokens, values[index].tolist(), added, strict=True)
        rows += [(example.idx, token, value) for token, value, special in of_text if not special]
    return Table(("idx", "token", "confidence"), tuple(rows), listed=False)


def histogram(values: npt.NDArray[Any], bins: int) -> Table:
    """Tokens and their share per bin, of values ``[n]``; a border belongs to the bin above, 1 to the last."""
    counts, edges = np.histogram(values, bins=bins, range=(0.0, 1.0))
    centres = (edges[:-1] + edges[1:]) / 2
    rows = tuple((round(float(c), 6), int(n), float(n / len(values))) for c, n in zip(centres, counts, strict=True))
    return Table(("confidence", "tokens", "share"), rows, keys=1, plot=Plot("confidence", "share", panels="sets"))
