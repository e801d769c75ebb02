"""One checkpoint of a run, ready to write for the API: a model with modules of its own, and its tokenizer."""

from __future__ import annotations

from collections.abc import Sequence

from glassformer.app.server.refusing import RefusedRequestError
from glassformer.app.server.registry import ServedModel
from glassformer.generation.continuous import Batch
from glassformer.model.attention import Attention
from glassformer.tasks import TextModel, Translator
from glassformer.tasks.writing import Writer
from glassformer.text.tokenizers import Tokenizer
from glassformer.text.tokenizers.tokenizer import StreamDecoder

FLOAT = 4
"""Bytes of a number in a cache."""


class Loaded:
    """A checkpoint that writes.

    Args:
        opened: from the registry; views may go on to use its model.

    Attributes:
        text: the model, which nobody hooks or patches.
        version: of the checkpoint.
        context: tokens that the model reads at most.
        row_bytes: of the keys and values of one text at most: those of all attentions with a whole context.

    Raises:
        GlassError: the run learnt to do something else than to write.
    """

    def __init__(self, opened: ServedModel) -> None:
        self.name, self.version, self.folder, self._opened = opened.name, opened.version, opened.folder, opened
        if not isinstance(opened.model, TextModel | Translator):
            task = opened.model.config.train.task
            raise RefusedRequestError(
                f"{self.name} learnt the task {task}: it writes no text",
                f"Ask the page, or glass {'classify' if task == 'classify' else 'fill'}; /v1/models lists what writes.",
            )
        text = opened.copy()
        assert isinstance(text, TextModel | Translator)
        self.text, self.context = text, text.config.model.context
        layers = [part for part in text.model.modules() if isinstance(part, Attention)]
        self.row_bytes = 2 * FLOAT * self.context * sum(layer.kv_heads * layer.head_width for layer in layers)

    def searcher(self) -> TextModel | Translator:
        """The model for a beam search, with modules of its own: searches run beside the batch."""
        text = self._opened.copy()
        assert isinstance(text, TextModel | Translator)
        return text

    @property
    def tokenizer(self) -> Tokenizer:
        """Of what is written."""
        return self.text.tokenizer

    @property
    def reader(self) -> Tokenizer:
        """Of what is read."""
        return self.text.source_tokenizer if isinstance(self.text, Translator) else self.text.tokenizer

    @property
    def vocabulary(self) -> int:
        """How many tokens a prompt is made of."""
        return self.reader.vocab_size

    @property
    def reads_whole(self) -> bool:
        """Whether a prompt is a source that is read, and not a text that goes on."""
        return isinstance(self.text, Translator)

    def batch(self) -> Batch:
        """A new batch of this model's rows."""
        if isinstance(self.text, Translator):
            return Batch(self.text.model, self.tokenizer.end_id, self.tokenizer.target_start)
        return Batch(self.text.model, self.tokenizer.end_id)

    def writer(self, ids: Sequence[int], stop: Sequence[str]) -> Writer:
        """What makes text of the tokens that follow a prompt."""
        return Writer(self.tokenizer, () if self.reads_whole else ids, stop)

    def decoder(self, ids: Sequence[int]) -> StreamDecoder:
        """The same without stop texts."""
        decoder = self.tokenizer.stream_decoder()
        for id in () if self.reads_whole else ids:
            decoder.feed(id)
        return decoder
