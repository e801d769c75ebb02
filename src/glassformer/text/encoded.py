"""Encode a text once into a named folder, so that any number of runs can train on it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from glassformer.base.config import DataConfig, TokenizerConfig
from glassformer.base.errors import MALFORMED, GlassError
from glassformer.base.files import new_output, recorded_sha256, sha256, write_manifest
from glassformer.base.settings import setting_text
from glassformer.text.locating import is_encoded
from glassformer.text.prepare import Prepared, TokenizerOrigin, open_prepared, write_prepared
from glassformer.text.record_store import damaged
from glassformer.text.records import RecordKind
from glassformer.text.source import open_source
from glassformer.text.tokenizers import Tokenizer


def encode_here(
    kind: RecordKind, data: DataConfig, tokenizer_origin: TokenizerOrigin, out: Path, progress: Callable[[str], None]
) -> Prepared:
    """Read and split a text, make its tokenizer, and encode it in this process; `out` appears when it is complete.

    Raises:
        GlassError: `out` is a file or a folder that is not empty; the source cannot be read or split; the tokenizer
            cannot be trained or loaded; or the disk is full.
    """
    with new_output(out) as temporary, open_source(kind, data, temporary.parent) as source:
        temporary.mkdir()
        write_prepared(source, None, tokenizer_origin, temporary, progress)
        write_manifest(temporary)
    return open_prepared(kind, out)


def settings_of_encoded(source: str) -> dict[str, dict[str, Any]]:
    """Return the settings of `data` and `tokenizer` with which an encoded text was made; empty for other sources.

    Raises:
        GlassError: the folder is damaged or altered.
    """
    folder = Path(source).expanduser()
    if source == "-" or not is_encoded(folder):
        return {}
    path = folder / "prepared.json"
    try:
        if recorded_sha256(folder, path.name) not in (None, sha256(path)):
            raise damaged(folder, f"{path.name} was altered")
        settings = json.loads(path.read_text(encoding="utf-8"))["settings"]
        return {name: dict(settings[name]) for name in ("data", "tokenizer")}
    except (OSError, *MALFORMED):
        raise GlassError(
            f"prepared.json in {folder} has no settings of data and tokenizer: it is damaged",
            "Encode the text again: glass data encode DATA --out OUT",
        ) from None


def open_encoded(
    kind: RecordKind, data: DataConfig, tokenizer: TokenizerConfig, existing_tokenizers: tuple[Tokenizer, ...] = ()
) -> Prepared:
    """Open the encoded text that `data.source` names, for a run with these settings.

    Args:
        kind: the kind of records.
        data, tokenizer: settings of the run.
        existing_tokenizers: the tokenizer that the run must use; empty: any tokenizer.

    Raises:
        GlassError: a setting or the tokenizer differs from the one that encoded the text; the task needs a mask token
            that the tokenizer lacks; or a file is damaged.
    """
    folder = Path(data.source).expanduser()
    encoding_settings = settings_of_encoded(data.source)
    for section, settings in (("data", data), ("tokenizer", tokenizer)):
        for name, value in settings.model_dump().items():
            if name in encoding_settings[section] and encoding_settings[section][name] != value:
                encoded_with = encoding_settings[section][name]
                raise GlassError(
                    f"{section}.{name} = {setting_text(value)}, but the text in {folder} was encoded with "
                    f"{setting_text(encoded_with)}",
                    f"Leave {section}.{name} out, or encode the text again into another folder.",
                )
    prepared = open_prepared(kind, folder)
    if existing_tokenizers and prepared.tokenizer.digest != existing_tokenizers[0].digest:
        raise GlassError(
            f"the text in {folder} was not encoded with the tokenizer of the run that --from names",
            "Encode it with that tokenizer: glass data encode DATA --tokenizer RUN/tokenizer.json --out OUT",
        )
    if kind.mask_token and prepared.tokenizer.mask_id is None:
        raise GlassError(
            f"the tokenizer of {folder} has no mask token, which train.task = masked needs",
            "Encode the text again into another folder: glass data encode DATA --task masked --out OUT",
        )
    return prepared
