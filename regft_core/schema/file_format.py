"""How a data file is written, as far as its name does not say."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class FileFormat:
    """How a file is written; ``FilesSource`` has the same keys.

    Attributes:
        delimiter: None: told from the header.
        encoding: None: told from the byte-order mark, else UTF-8.
        quoted: fields of a .tsv are quoted as in CSV.
        sheet: of an .xlsx; None: the only one.
        decimal: the decimal mark of labels that are numbers; None: a point, and no mark between thousands.
    """

    delimiter: str | None = None
    encoding: str | None = None
    quoted: bool = False
    sheet: str | None = None
    decimal: str | None = None


#: Nothing is said: all is told from the file.
UNSAID = FileFormat()
