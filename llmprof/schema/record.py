"""Base classes of everything llmprof reads from or writes to disk."""

from pydantic import BaseModel, ConfigDict


class Record(BaseModel):
    """An immutable part of a document.

    Quantities are in base units, and the unit is the end of the field's name:
    `_s`, `_bytes`, `_flops`, `_bytes_per_s`, `_flops_per_s`, `_flops_per_byte`, `_w`, `_hz`.
    A document may carry keys of a newer version: they are ignored here and named in a caveat by
    the reader of the file (`store.documents`).
    """

    model_config = ConfigDict(
        frozen=True,
        extra="ignore",
        allow_inf_nan=False,
        use_attribute_docstrings=True,
        validate_default=True,
        serialize_by_alias=True,
        validate_by_name=True,
        validate_by_alias=True,
        json_schema_serialization_defaults_required=True,  # every field is always written
        protected_namespaces=(),
    )


class Setting(BaseModel):
    """An immutable group of settings. An unknown key is an error: a typo must not be ignored."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        allow_inf_nan=False,
        use_attribute_docstrings=True,
        validate_default=True,
        protected_namespaces=(),
    )
