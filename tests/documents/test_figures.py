"""Measured figures in README and docs are those of the files that made them, or of this environment."""

from __future__ import annotations

import os
import re
import tomllib
from importlib import metadata

import pytest
from packaging.requirements import Requirement

from tests.documents.pages import ROOT
from tests.structure.prose import documents, paragraphs

BENCHMARKS = (ROOT / "benchmarks/README.md").read_text(encoding="utf-8")
README = (ROOT / "README.md").read_text(encoding="utf-8")
#: (document, what it says, what the benchmarks say; or where a number of the documents' is from).
FIGURES = [
    ("README.md", "seven to twelve minutes of CPU time", r"\| together \| 688 \| 424 \|"),  # seconds
    ("docs/decisions.md", "lost 2.52", r"2\.52 for the frozen\s+encoder"),
    ("docs/decisions.md", "lost 0.90", r"0\.90 for the expected score alone"),
    ("docs/own_data.md", "93 to 97% of worlds", r"\| 100 \| 5 \| 1 \| 0\.02 \| none \| 0\.935"),
    ("docs/own_data.md", "88 to 99%", r"\| 0\.882 ± .*\n(.*\n)*.*\| 0\.985 ±"),
]
#: Sections whose figures are from elsewhere, with the place beside them.
CITED = ("docs/analyses.md", "SECURITY.md")
#: A figure with an interval, a duration, a size, or points.
MEASURED = re.compile(r"\d\.\d+ \[|\d (?:s|ms|GB|MB|points?|hours) ")
#: The size of the environment, which a test here measures.
MLFLOW = "MLflow takes 69 MB and SQLAlchemy 29"


@pytest.mark.parametrize(("page", "says", "made"), FIGURES, ids=[says for _, says, _ in FIGURES])
def test_a_figure_is_that_of_the_benchmarks(page: str, says: str, made: str) -> None:
    assert says in (ROOT / page).read_text(encoding="utf-8")
    assert re.search(made, BENCHMARKS)


def test_the_readmes_table_is_that_of_the_benchmarks() -> None:
    tasks = {"SST-2": "sst2", "STS-B": "stsb", "MRPC": "mrpc", "CoLA": "cola", "QNLI": "qnli"}
    rows = re.findall(r"^\| ([\w-]+), [^|]+\| ([^|]+) \| ([^|]+) \| ([^|]+) \|$", README, re.MULTILINE)
    rows = [row for row in rows if row[0] in tasks]
    assert len(rows) == len(tasks)
    section = BENCHMARKS.split("## The same with `mpnet`")[1].split("\n## ")[0]
    for task, frozen, tuned, difference in rows:
        assert re.search(rf"\| {tasks[task]}-300, [^|]+\| linear_probe \| {re.escape(frozen)} \|", section), task
        made = rf"\| {tasks[task]}-300, [^|]+\| lp_ft \| {re.escape(tuned)} \| {re.escape(difference)} \|"
        assert re.search(made, section), task


def test_the_environment_has_the_size_that_the_readme_says() -> None:
    """Within a tenth, byte code included as pip writes it; torch's CPU build only."""
    if not metadata.version("torch").endswith("+cpu"):
        pytest.skip("torch is not the CPU build")
    plain, code = sizes()
    said = re.search(
        r"The environment takes ([\d.]+) GB: torch ([\d.]+), pyarrow ([\d.]+), .*byte code ([\d.]+)\.", README
    )
    assert said is not None
    whole, torch, pyarrow, byte_code = map(float, said.groups())
    assert plain["torch"] + code["torch"] == pytest.approx(torch, rel=0.1)
    assert plain["pyarrow"] + code["pyarrow"] == pytest.approx(pyarrow, rel=0.1)
    assert sum(code.values()) == pytest.approx(byte_code, rel=0.2)
    assert sum(plain.values()) + sum(code.values()) == pytest.approx(whole, rel=0.1)
    assert MLFLOW in (ROOT / "docs/decisions.md").read_text(encoding="utf-8")
    assert plain["mlflow"] + code["mlflow"] == pytest.approx(0.069, rel=0.2)
    assert plain["sqlalchemy"] + code["sqlalchemy"] == pytest.approx(0.029, rel=0.2)
    assert sum(plain.values()) == pytest.approx(
        float(re.search(r"without byte code in ([\d.]+) GB", README)[1]), rel=0.1
    )


def sizes() -> tuple[dict[str, float], dict[str, float]]:
    """GB of files and of byte code of the packages that regft needs, and of those that they need."""
    wanted = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["dependencies"]
    todo, plain, code = [Requirement(text) for text in wanted], dict[str, float](), dict[str, float]()
    while todo:
        needed = todo.pop()
        name = re.sub(r"[-_.]+", "-", needed.name).lower()
        if name in plain:
            continue
        found = metadata.distribution(name)
        plain[name] = code[name] = 0.0
        for file in found.files or ():
            path = found.locate_file(file)
            if os.path.exists(str(path)):
                (code if str(file).endswith(".pyc") else plain)[name] += os.path.getsize(str(path)) / 1e9
        for more in map(Requirement, found.requires or ()):
            if more.marker is None or any(more.marker.evaluate({"extra": extra}) for extra in ("", *needed.extras)):
                todo.append(more)
    return plain, code


def test_no_other_document_has_measured_figures_of_its_own() -> None:
    """New ones go to ``benchmarks/README.md`` with the command that made them, and stand in ``FIGURES`` here."""
    known = {MLFLOW, *(says for _, says, _ in FIGURES)}
    found = []
    for path in documents():
        name = path.relative_to(ROOT).as_posix()
        if name not in (*CITED, "README.md"):
            for line, text in paragraphs(path.read_text(encoding="utf-8")):
                bare = re.sub(r"`[^`]*`", "", text)
                if MEASURED.search(bare) and not any(says in text for says in known):
                    found.append(f"{name}:{line}: {bare[:200]}")
    assert not found, "\n".join(found)
