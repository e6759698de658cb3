"""An edit trains again what it changes and nothing else, also without DVC."""

from __future__ import annotations

from pathlib import Path

from tests.promises.kit import edit, python, with_own_method
from tests.small_project import build

RUN = """
from regft_core.api import Project
project = Project.open(".")
for method in ("vanilla", "stretched"):
    project.run(method, "reviews")
"""


def test_only_what_an_edit_changes_is_trained_again(tmp_path: Path) -> None:
    root = build(tmp_path / "project", methods=["vanilla"], grid={"seeds": [0]})
    log = with_own_method(root, data_file=True)
    code, settings = root / "methods" / "stretched.py", root / "pipelines" / "methods" / "stretched.yaml"

    def runs() -> tuple[int, int]:
        """How often the method was trained so far, and how many runs with weights there are."""
        done = python(root, RUN, REGFT_TEST_TRAINED=str(log))
        assert done.returncode == 0, done.stderr
        return len(log.read_text().split()), len(list((root / ".regft").rglob("weights*.safetensors")))

    assert runs() == (1, 2)
    edit(code, '"""Gradients times a number."""', '"""Gradients, longer."""  # a comment')
    edit(settings, "description: a test", "description: other words")
    assert runs() == (1, 2)
    edit(settings, "1.5", "1.75")
    assert runs() == (2, 3)
    edit(code, "self.options.by * SCALE", "SCALE * self.options.by * 1.01")
    assert runs() == (3, 4)
    (root / "methods" / "stretched.txt").write_text("1.25")
    assert runs() == (4, 5)
