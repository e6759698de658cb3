"""Trackers, one in each file of this folder: where finished runs are logged, beside the files of the project.

A file has the tracker's name, which ``trackers`` of ``params.yaml`` lists, and defines ::

    log(root: Path, read: Callable[[], list[Entry]]) -> str

``root`` is the project. ``read()`` returns the entries of its grid (``tracking/entries.py``): one for each method, task
and size, with those of its seeds nested in it, and the report. They are made of files, so ``log`` may be called at any
time and again: it logs what it has not logged yet, by ``Entry.identity``, and returns a line for the screen.
"""
