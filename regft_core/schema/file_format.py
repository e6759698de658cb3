"""How a data file is written, as far as its name does not say."""

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


class FileFormat(StrictModel):
    """How a file is written."""

    quoted: bool = Field(False, description="fields of a .tsv are quoted as in CSV; else a quote is a character")
    delimiter: Annotated[str, Field(pattern=r'^[^"\r\n]$')] | None = Field(
        None, description="what separates the columns of a .csv or .tsv; told from the header when absent"
    )
    encoding: Annotated[str, AfterValidator(_check_encoding)] | None = Field(
        None, description="of text files; when absent that of the byte-order mark, else UTF-8"
    )
    sheet: str | None = Field(None, description="sheet of an .xlsx; the only one when absent")
    decimal: Literal[",", "."] | None = Field(
        None, description="decimal mark of numbers in text; the other mark may then stand between thousands"
    )

    @property
    def told(self) -> dict[str, Any]:
        """What is said of the format."""
        return {name: value for name in FileFormat.model_fields if (value := getattr(self, name))}

    @model_serializer(mode="wrap")
    def _settled(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """The values as they stand in keys: what is not said is left out of them."""
        return {name: value for name, value in dump(self).items() if name not in FileFormat.model_fields or value}


#: Nothing is said: all is told from the file.
UNSAID = FileFormat()
