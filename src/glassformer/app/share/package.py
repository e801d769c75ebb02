"""Contents of the shared file: a header that describes the run, the weights as bytes, and the page that contains both.

::

    <script type="application/json" id="glass-header">      the header, `<` written as \\u003c
    <script type="application/octet-stream" id="glass-data">     the weights in base64

No content of the run can end one of the elements early: neither base64 nor the header contains a `<`.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from glassformer.app.server.listing import model_metadata
from glassformer.app.share.quantize import Bits, Floats, PackedTensor, pack, unpack
from glassformer.app.share.tokenizing import page_tokenizer
from glassformer.base.config import CONVERSATIONS, LABELLED, PAIRS, Config, ModelConfig
from glassformer.base.errors import GlassError
from glassformer.base.pages import render_page
from glassformer.base.wording import quoted
from glassformer.runs.opening import OpenedRun
from glassformer.tasks import ChatModel
from glassformer.text.tokenizers import frame_of

FORMAT = 1
TEMPLATE = Path(__file__).parent / "page" / "share.html"
"""Path of the page without a model, which `npm run build` writes."""
DELIMITERS = MappingProxyType(
    {
        "variable_start_string": "<!--glass:",
        "variable_end_string": "-->",
        "block_start_string": "<!--glass-block:",
        "block_end_string": "-->",
        "comment_start_string": "<!--glass-comment:",
        "comment_end_string": "-->",
    }
)
"""Delimiters of the template; Jinja's default delimiters occur in its scripts and styles."""
JSON_BLOCK = '<script type="application/json" id="glass-header">'
DATA_BLOCK = '<script type="application/octet-stream" id="glass-data">'
Json = dict[str, Any]


@dataclass(frozen=True)
class Package:
    """Contents of a shared file.

    Attributes:
        header: description of the run and of the tensors in `data`.
        data: bytes of the weights.
    """

    header: Json
    data: bytes

    def tensors(self) -> dict[str, Floats]:
        """Return the weights as float32, rounded as in the file."""
        stored = [
            PackedTensor(each["name"], tuple(each["shape"]), each["kind"], each["offset"])
            for each in self.header["tensors"]
        ]
        return unpack(stored, self.data)

    def page(self) -> str:
        """Return the HTML of the whole file.

        Raises:
            GlassError: the page was not built.
        """
        if not TEMPLATE.is_file():
            raise GlassError(f"{TEMPLATE} does not exist", "Build the page: cd web && npm ci && npm run build")
        return render_page(
            "glassformer.app.share",
            "page/share.html",
            DELIMITERS,
            title=f"{self.header['run']['name']} · glassformer",
            header=self.header,
            data=base64.b64encode(self.data).decode("ascii"),
        )

    @classmethod
    def read(cls, path: Path) -> Package:
        """Read the header and the weights from a file that `page` made.

        Raises:
            GlassError: the file is missing or incomplete, cannot be read, was not written by `glass share`, or has
                another format version.
        """
        try:
            text = path.read_text(encoding="utf-8")
            if not text.rstrip().endswith("</html>"):
                raise ValueError("the end is missing")
            header = json.loads(_block_contents(text, JSON_BLOCK))
            data = base64.b64decode(_block_contents(text, DATA_BLOCK), validate=True)
        except FileNotFoundError:
            raise GlassError(f"{path} does not exist", "Give an HTML file that glass share wrote.") from None
        except OSError as error:
            raise GlassError(
                f"{path} cannot be read: {error.strerror}", "Give an HTML file that glass share wrote."
            ) from None
        except (ValueError, UnicodeDecodeError):
            raise GlassError(
                f"{path} is not a complete file written by glass share",
                f"Write the file again: glass share RUN --out {quoted(path)}",
            ) from None
        if header.get("format") != FORMAT:
            raise GlassError(
                f"{path} has format {header.get('format')!r}; this version reads format {FORMAT}",
                f"Write the file again: glass share RUN --out {quoted(path)}",
            )
        return cls(header, data)


def _block_contents(text: str, block: str) -> str:
    """Return the contents of a block, up to its end tag; raise a `ValueError` if it is not complete."""
    _, start_tag, remainder = text.partition(block)
    contents, end_tag, _ = remainder.partition("</script>")
    if not start_tag or not end_tag:
        raise ValueError(f"no complete {block}")
    return contents


def make_package(opened: OpenedRun, bits: Bits, examples: Sequence[str]) -> Package:
    """Return the contents of the shared file of a run, without the result of the comparison.

    Args:
        opened: the opened run.
        bits: bits per weight.
        examples: example texts for the page; empty: the first text that `glass serve` shows for the run.

    Raises:
        GlassError: the page does not support the run's chat template or tokenizer, or the files of the run are damaged.
    """
    config = opened.config
    run = opened.files
    facts = model_metadata(run)
    weights = {name: tensor.detach().float().cpu().numpy() for name, tensor in opened.model.state_dict().items()}
    stored, data = pack(weights, bits)
    tokenizer = page_tokenizer(opened.tokenizer, run.tokenizer_file)
    source = page_tokenizer(opened.source_tokenizer, run.source_tokenizer_file) if config.two_vocabularies else None
    before, after = _frame_ids(opened)
    header = {
        "format": FORMAT,
        "bits": bits,
        "run": {
            "name": run.folder.resolve().name,
            "version": opened.checkpoint.name,
            "step": opened.step,
            "training": False,
            "error": None,
            "parent": None,
            **facts,
        },
        "examples": list(examples) or [facts["prompt"]],
        "settings": settings_of(config, facts["attentions"]),
        "sample": config.sample.model_dump(mode="json"),
        "frame": {"before": before, "after": after},
        "tokenizer": tokenizer,
        "source_tokenizer": source,
        "config": _without_paths(config),
        "tensors": [each.facts() for each in stored],
    }
    return Package(header, data)


def _frame_ids(opened: OpenedRun) -> tuple[list[int], list[int]]:
    """Return the token ids that the model reads before and after each text or, for a chat model, each question.

    Raises:
        GlassError: these ids depend on the question, or a text may end with a stop string or with a token other than
            the end token. The page, which does not apply templates, supports neither.
    """
    model = opened.text_model
    if not isinstance(model, ChatModel):
        if opened.tokenizer.extra_end_ids:
            raise GlassError(
                f"the model of {opened.folder} ends a text with any of several tokens, but the page supports only one",
                f"Serve the run: glass serve {quoted(opened.folder)}",
            )
        pairs = opened.config.train.task in PAIRS
        frame = frame_of(opened.source_tokenizer if pairs else opened.tokenizer, opened.config)
        return list(frame.before), list(frame.after)
    question_frame = model.around_question()
    stop, _ = model.chat.ending
    if question_frame is None or stop or not model.extra_end_ids <= {model.tokenizer.end_id}:
        folder = opened.folder
        end = model.tokenizer.token_text(model.tokenizer.end_id)
        raise GlassError(
            f"the page does not support the chat template of {folder}: the template must write only special tokens "
            f"around a question, leave the question unchanged, and end an answer with {end}",
            f"Serve the run: glass serve {quoted(folder)}",
        )
    return question_frame


def settings_of(config: Config, attentions: Json) -> Json:
    """Return the settings that the forward pass depends on, with defaults resolved."""
    model: ModelConfig = config.model
    names = (
        "family",
        "context",
        "width",
        "heads",
        "positions",
        "norm",
        "norm_order",
        "activation",
        "window",
        "head_transform",
        "shared_embedding",
        "pooling",
        "embedding_scale",
        "rotary_base",
        "relative_max_distance",
    )
    return {
        **{name: getattr(model, name) for name in names},
        "kv_heads": model.G,
        "head_width": model.K,
        "norm_eps": model.eps,
        "qk_eps": model.norm_eps or 1e-6,
        "classifier": config.train.task in LABELLED,
        "attentions": attentions,
    }


def _without_paths(config: Config) -> Json:
    """Return the settings that the model and its tokenizer need, without file names, which may be private."""
    all_settings = config.model_dump(mode="json")
    selected_settings = {name: all_settings[name] for name in ("model", "tokenizer", "sample")}
    data: Json = {"windows": config.data.windows}
    if config.train.task in CONVERSATIONS:
        data["chat_template"] = config.data.chat_template
    return {**selected_settings, "train": {"task": config.train.task}, "data": data}
