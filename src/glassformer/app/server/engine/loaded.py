"""Checkpoint that generates text for the API and the page: a model copy with shared weights but separate modules."""

from __future__ import annotations

from collections.abc import Sequence

from glassformer.app.server.registry import ServedModel
from glassformer.app.server.request_errors import RefusedRequestError
from glassformer.backends.choosing import open_engine
from glassformer.base.backends import BackendName
from glassformer.generation.decoding import TokenLoop
from glassformer.generation.fast import MIN_REORDER_STEPS
from glassformer.generation.logit_readers import make_reader
from glassformer.model.attention import Attention
from glassformer.tasks import TextModel, Translator
from glassformer.tasks.written_text import TextStreamer
from glassformer.text.tokenizers import Tokenizer
from glassformer.text.tokenizers.tokenizer import StreamDecoder

FLOAT = 4
"""Size in bytes of a float32 number in a key/value cache."""
PREFILL_TOKENS = 512
"""Maximum number of prompt tokens to read in one step, during which the generation of the run's other texts waits."""


class LoadedCheckpoint:
    """Checkpoint of a run, prepared to generate text for the API and the page.

    Args:
        opened: the checkpoint in the registry; views may use its model at the same time.
        backend: backend that computes the logits.

    Attributes:
        name: name of the run in the registry.
        version: name of the checkpoint.
        folder: path of the run folder.
        text_model: a copy of the model, without hooks and patches.
        context: maximum number of tokens that the model reads.
        row_bytes: bytes of the float32 keys and values of one text that fills the context, over all attention layers.

    Raises:
        GlassError: the task of the run does not generate text, or the backend cannot run the model.
    """

    def __init__(self, opened: ServedModel, backend: BackendName = "torch") -> None:
        self.name = opened.name
        self.version = opened.version
        self.folder = opened.folder
        self._opened = opened
        if not isinstance(opened.model, TextModel | Translator):
            task = opened.model.config.train.task
            raise RefusedRequestError(
                f"{self.name} was trained with train.task = {task}: it does not generate text",
                f"Use the page, or glass {'classify' if task == 'classify' else 'fill'}; /v1/models lists the runs "
                "that generate text.",
            )
        self._backend = backend
        model = self.beam_search_model()
        self.text_model = model
        self.context = model.config.model.context
        layers = [part for part in model.model.modules() if isinstance(part, Attention)]
        channels = sum(layer.kv_heads * (layer.head_width + layer.value_width) for layer in layers)
        self.row_bytes = FLOAT * self.context * channels

    def beam_search_model(self) -> TextModel | Translator:
        """Return a copy of the model with a separate backend, for a beam search in parallel with the token loop."""
        writer = self._opened.copy().writer
        writer.engine = open_engine(self._backend, writer.model)
        return writer

    @property
    def tokenizer(self) -> Tokenizer:
        """Tokenizer of the generated text."""
        return self.text_model.tokenizer

    @property
    def prompt_tokenizer(self) -> Tokenizer:
        """Tokenizer of prompts, or of sources."""
        return self.text_model.source_tokenizer

    @property
    def prompt_vocab_size(self) -> int:
        """Vocabulary size of prompts."""
        return self.prompt_tokenizer.vocab_size

    @property
    def is_encoder_decoder(self) -> bool:
        """Whether a prompt is a source to encode, not a text to continue."""
        return isinstance(self.text_model, Translator)

    def token_loop(self) -> TokenLoop:
        """Return a new token loop of this model."""
        reader = make_reader(self.text_model.model, MIN_REORDER_STEPS, self.text_model.engine, PREFILL_TOKENS)
        start = self.tokenizer.target_start if isinstance(self.text_model, Translator) else ()
        return TokenLoop(reader, self.tokenizer.end_id, start, extra_end_ids=self.tokenizer.extra_end_ids)

    def writer(self, ids: Sequence[int], stop: Sequence[str]) -> TextStreamer:
        """Return a streamer that turns the tokens after a prompt into text, up to the first stop string."""
        return TextStreamer(self.tokenizer, self.text_model.ids_before_text(ids), stop)

    def decoder(self, ids: Sequence[int]) -> StreamDecoder:
        """Return a decoder for the tokens after a prompt; unlike `writer`, it does not handle stop strings."""
        decoder = self.tokenizer.stream_decoder()
        for id in self.text_model.ids_before_text(ids):
            decoder.feed(id)
        return decoder
