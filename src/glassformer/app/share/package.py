"""Contents of the shared file: a header that describes the run, the weights as bytes, and the page around both.

::

    <script type="application/json" id="glass-header">      the header, `<` written as \\u003c
    <script type="application/octet-stream" id="glass-data">     the weights in base64

Neither can end its element early, whatever the run contains: there is no `<` in base64, nor in the header.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from glassformer.app.server.listing import shape_of
from glassformer.app.share.quantize import Bits, Floats, Stored, pack, unpack
from glassformer.app.share.tokenizing import for_the_page
from glassformer.base.config import CONVERSATIONS, LABELLED, PAIRS, Config, ModelConfig
from glassformer.base.errors import GlassError
from glassformer.base.pages import render_page
from glassformer.base.wording import quoted
from glassformer.runs.opening import OpenedRun
from glassformer.tasks import ChatModel
from glassformer.text.tokenizers import frame_of

FORMAT = 1
TEMPLATE = Path(__file__).parent / "page" / "share.html"
"""Where `npm run build` puts the page without a model."""
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
"""Of the template: its scripts and styles contain Jinja's own."""
JSON_BLOCK = '<script type="application/json" id="glass-header">'
DATA_BLOCK = '<script type="application/octet-stream" id="glass-data">'
Json = dict[str, Any]


@dataclass(frozen=True)
class Package:
    """A header and the bytes that it speaks of."""

    header: Json
    data: bytes

    def tensors(self) -> dict[str, Floats]:
        """The weights, as the page has them."""
        stored = [
            Stored(each["name"], tuple(each["shape"]), each["kind"], each["offset"]) for each in self.header["tensors"]
        ]
        return unpack(stored, self.data)

    def page(self) -> str:
        """The whole file.

        Raises:
            GlassError: the page was not built.
        """
        if not TEMPLATE.is_file():
            raise GlassError(f"there is no {TEMPLATE}", "Build the page: cd web && npm ci && npm run build")
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
            GlassError: the file is missing, is not a whole file of `glass share`, or has another format version.
        """
        try:
            text = path.read_text(encoding="utf-8")
            if not text.rstrip().endswith("</html>"):
                raise ValueError("it has no end")
            header = json.loads(_between(text, JSON_BLOCK))
            data = base64.b64decode(_between(text, DATA_BLOCK), validate=True)
        except FileNotFoundError:
            raise GlassError(f"there is no file {path}", "Give the HTML file that glass share wrote.") from None
        except (ValueError, UnicodeDecodeError):
            raise GlassError(f"{path} is not a whole file of glass share", "Write it again: glass share RUN.") from None
        if header.get("format") != FORMAT:
            raise GlassError(
                f"{path} has format {header.get('format')!r}; this version reads format {FORMAT}",
                "Write it again: glass share RUN.",
            )
        return cls(header, data)


def _between(text: str, block: str) -> str:
    """Return the contents of a block, up to its end tag."""
    _, found, rest = text.partition(block)
    inside, ended, _ = rest.partition("</script>")
    if not found or not ended:
        raise ValueError(f"no whole {block}")
    return inside


def make_package(opened: OpenedRun, bits: Bits, examples: Sequence[str]) -> Package:
    """The run as the page reads it; what was compared is added later.

    Args:
        opened: the run.
        bits: of a weight.
        examples: texts to begin with; none: the run's own prompt.

    Raises:
        GlassError: the run's chat template or its tokenizer does not work in the page, or its files are damaged.
    """
    config = opened.config
    run = opened.files
    facts = shape_of(run)
    weights = {name: tensor.detach().float().cpu().numpy() for name, tensor in opened.model.state_dict().items()}
    stored, data = pack(weights, bits)
    tokenizer = for_the_page(opened.tokenizer, run.tokenizer_file)
    source = for_the_page(opened.source_tokenizer, run.source_tokenizer_file) if config.two_vocabularies else None
    before, after = _around_text(opened)
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
        "config": _without_places(config),
        "tensors": [each.facts() for each in stored],
    }
    return Package(header, data)


def _around_text(opened: OpenedRun) -> tuple[list[int], list[int]]:
    """Return the ids before and after every text that is read, or every question.

    Raises:
        GlassError: these depend on the question, or more than the end token ends an answer: the page has no templates.
    """
    model = opened.text_model
    if not isinstance(model, ChatModel):
        if opened.tokenizer.more_ends:
            raise GlassError(
                f"the model of {opened.folder} ends a text by any of several tokens, and the page knows one",
                f"Serve the run: glass serve {quoted(opened.folder)}",
            )
        pairs = opened.config.train.task in PAIRS
        frame = frame_of(opened.source_tokenizer if pairs else opened.tokenizer, opened.config)
        return list(frame.before), list(frame.after)
    found = model.around_question()
    stop, _ = model.chat.ending
    if found is None or stop or not model.more_ends <= {model.tokenizer.end_id}:
        folder = opened.folder
        end = model.tokenizer.token_text(model.tokenizer.end_id)
        raise GlassError(
            f"the chat template of {folder} does not work in the page: it must write only special tokens around a "
            f"question, leave the question unchanged, and end an answer with {end}",
            f"Serve the run: glass serve {quoted(folder)}",
        )
    return found


def settings_of(config: Config, attentions: Json) -> Json:
    """Return the settings that the forward pass depends on, with defaults resolved."""
    model: ModelConfig = config.model
    same = (
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
        **{name: getattr(model, name) for name in same},
        "kv_heads": model.G,
        "head_width": model.K,
        "norm_eps": model.eps,
        "qk_eps": model.norm_eps or 1e-6,
        "classifier": config.train.task in LABELLED,
        "attentions": attentions,
    }


def _without_places(config: Config) -> Json:
    """The settings that a model and its tokenizer need; no file names, which are nobody else's business."""
    whole = config.model_dump(mode="json")
    kept = {name: whole[name] for name in ("model", "tokenizer", "sample")}
    data: Json = {"windows": config.data.windows}
    if config.train.task in CONVERSATIONS:
        data["chat_template"] = config.data.chat_template
    return {**kept, "train": {"task": config.train.task}, "data": data}
