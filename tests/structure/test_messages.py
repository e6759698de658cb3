"""Every error carries a code, and every text stands in the golden file."""

from __future__ import annotations

import importlib
import pickle
import pkgutil
import re
from collections import defaultdict
from pathlib import Path

import regft_core
from regft_core import errors
from regft_core.errors import ConfigError, DamagedRun, DataError, Problem, RegftError, StoreError, text_of
from regft_core.execution.failures import JobFailure, JobsFailed
from regft_core.hooks.registry import discover
from regft_core.io.reading import Unreadable
from tests.structure import messages

_VERBS = (
    "accept add allowed ask change check choose close convert copy correct delete edit end export fetch fix free get "
    "give indent install keep label leave lower make map merge move name open pass point put quote raise read remove "
    "rename repair repeat report restore return rewrite run save see set start switch take train try use wait write"
)
NEXT_STEP = re.compile(
    rf"-> |(^(?!set ')|[;:.,(|] ?|\b(or|and|so|To) )({'|'.join(_VERBS.split())}|did you mean)\b", re.IGNORECASE
)
#: Texts that are made elsewhere: a value in braces is all of it, or its end.
ELSEWHERE = re.compile(r"(\{[\w.]+\}|\{\.\.\.\})$")
#: What no file and no option of a user causes: one part of the program gave another what it must not.
INVARIANTS = {
    "counts-differ",
    "index-twice",
    "not-class-indices",
    "sets-differ",
    "tokenizer-hash-missing",
    "wrong-shape",
}


def test_every_error_and_every_problem_has_a_code() -> None:
    without = [f"{site.place}: {site.name}: {site.text[:80]}" for site in messages.sites() if not site.codes]

    assert not without, "the first argument is a kebab-case code:\n" + "\n".join(without)
    assert len(messages.sites()) > 350


def test_no_two_codes_are_made_of_the_same_words() -> None:
    """``row-missing`` beside ``missing-rows`` would be two names for one thing."""
    alike = defaultdict(set)
    for code in {code for site in messages.sites() for code in site.codes}:
        alike[frozenset(word.removesuffix("s") for word in code.split("-"))].add(code)

    assert not [codes for codes in alike.values() if len(codes) > 1]


def test_all_texts_are_in_the_golden_file() -> None:
    found, golden = messages.golden().splitlines(), messages.GOLDEN.read_text(encoding="utf-8").splitlines()

    assert found == golden, (
        f"texts of errors changed. Read them as a user would, then write the file anew: {messages.COMMAND}\n"
        + "\n".join(
            [f"- {row}" for row in golden if row not in found] + [f"+ {row}" for row in found if row not in golden]
        )
    )


def test_errors_of_regularisers_start_with_their_option() -> None:
    """That is how their place in the YAML is found (``provenance.place_in``)."""
    sites = [s for s in messages.sites() if s.place.startswith("regft_core/methods/") and s.name == "ModelError"]
    names = "|".join(discover())

    assert len(sites) > 20
    assert not [site for site in sites if not re.match(rf"({names})(\.\w+)*: ", site.text)]


def test_every_error_says_what_to_do_next() -> None:
    """After an arrow, or as a clause of its own that begins with a verb."""
    lacking = [
        f"{site.place}: {site.text[:100]}"
        for site in messages.sites()
        if not NEXT_STEP.search(site.text) and not ELSEWHERE.search(site.text) and not set(site.codes) <= INVARIANTS
    ]

    assert not lacking, "append '\\n    -> ' and what the user can do:\n" + "\n".join(lacking)


def test_problems_stand_file_by_file_from_the_top() -> None:
    places = [("b.yaml", 9), ("a.yaml", 4), ("b.yaml", 2), ("a.yaml", 0)]
    error = ConfigError([Problem("unknown-key", file, line, "", "unknown") for file, line in places])
    shown = [line.split(": ")[0].strip() for line in str(error).splitlines()[1:]]
    assert shown == ["b.yaml:2", "b.yaml:9", "a.yaml", "a.yaml:4"]


def test_the_code_ends_the_first_line() -> None:
    error = DataError("no-rows", "data/x.csv: no rows\n    -> one JSON object per line")
    problem = Problem("unknown-key", "params.yaml", 3, "model.nam", "unknown key 'nam'", "did you mean 'name'?")

    assert str(error) == "data/x.csv: no rows [no-rows]\n    -> one JSON object per line"
    assert (error.code, text_of(error)) == ("no-rows", str(error).replace(" [no-rows]", ""))
    assert str(problem) == "params.yaml:3: model.nam: unknown key 'nam' [unknown-key]\n    -> did you mean 'name'?"
    assert str(ConfigError([problem, problem])) == f"configuration: 2 problems\n  {problem}\n  {problem}"
    assert text_of(ValueError("plain")) == "plain"


def test_errors_come_home_from_worker_processes_with_their_code() -> None:
    problem = Problem("unknown-key", "params.yaml", 3, "model.nam", "unknown key 'nam'")
    made: list[RegftError] = [
        cls("out-of-date", "text") for cls in _every_class() if cls not in (ConfigError, DamagedRun, JobsFailed)
    ]
    made += [
        ConfigError([problem]),
        DamagedRun("k", Path("runs/k"), "cut"),
        JobsFailed([JobFailure(0, "a", "b")], [None]),
    ]

    for error in made:
        again = pickle.loads(pickle.dumps(error))  # noqa: S301
        assert (type(again), again.code, str(again), vars(again)) == (type(error), error.code, str(error), vars(error))
    assert {StoreError, Unreadable, ConfigError} <= {type(error) for error in made}


def _every_class() -> set[type[RegftError]]:
    for room in ("store", "execution"):
        for module in pkgutil.iter_modules([str(Path(regft_core.__file__).parent / room)], f"regft_core.{room}."):
            importlib.import_module(module.name)
    found, queue = set(), [errors.RegftError]
    while queue:
        found.add(queue[-1])
        queue += queue.pop().__subclasses__()
    return found
