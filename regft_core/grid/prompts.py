"""Whether the words of prompts are tokens of the project's encoder; only its tokenizer knows. No torch."""

from __future__ import annotations

from regft_core.data.prompts import wrong_words
from regft_core.errors import ConfigError, Problem
from regft_core.grid.lengths import fast_tokenizer
from regft_core.models.source import resolve_model
from regft_core.schema.method import other_tasks
from regft_core.settings.files import task_file
from regft_core.settings.project import Project


def check_words(project: Project) -> None:
    """Raise ConfigError for words that are not one token, with their lines, where a listed method reads prompts."""
    reading = [m for m in project.methods.values() if m.encoder(project.params.model).pooling == "mask"]
    if not reading:
        return
    tokenizer = fast_tokenizer(resolve_model(project.params.model, project.root))
    problems: list[Problem] = []
    for task in dict.fromkeys([*project.params.grid.tasks, *other_tasks(reading, labelled=True)]):
        prompt = project.tasks[task].prompt
        if prompt is not None and (wrong := wrong_words(prompt.words, tokenizer)):
            document = project.documents[task_file(task)]
            hint = "choose a shorter or more common word, such as yes, no, good"
            problems += [
                document.problem("word-not-one-token", ("prompt", "words", label), message, hint)
                for label, message in wrong.items()
            ]
    if problems:
        raise ConfigError(problems)
