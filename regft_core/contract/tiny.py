"""Tiny random encoders, made on the spot in well under a second: hidden size 32, two heads, a vocabulary of letters and
everyday words with a working fast tokenizer. Two calls write the same bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

WORDS = (
    "the a is was it not and or but very good bad great poor film movie story plot actor music food place service "
    "he she they we you i this that who what when where how all some no yes one two three red blue green new old "
    "big small fast slow happy sad love hate see go say think make take day night man woman child dog cat house"
)
#: Of BERT's configuration, and of the families whose configurations are like it.
BLOCKS: dict[str, Any] = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 64,
    "max_position_embeddings": 160,
    # Larger than usual, so that a change at one site is visible in the logits of so small a model.
    "initializer_range": 0.1,
}
SIZES: dict[str, Any] = {**BLOCKS, "hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1}
BERT_TOKENS = ("[CLS]", "[PAD]", "[SEP]", "[UNK]", "[MASK]")


def tiny_encoder(folder: Path, layers: int) -> Path:
    """Write a BERT of so many layers with its masked-LM head under ``folder``, and return its directory."""
    from transformers import AutoModelForMaskedLM, BertConfig

    tokenizer = word_tokenizer(BERT_TOKENS, "[CLS]:0 $A:0 [SEP]:0", "[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1", segments=True)
    ids = {"vocab_size": len(tokenizer), "pad_token_id": tokenizer.pad_token_id}
    config = BertConfig(**{**SIZES, **ids, "num_hidden_layers": layers})
    write_checkpoint(folder / "tiny", lambda: AutoModelForMaskedLM.from_config(config), tokenizer)
    return folder / "tiny"


def write_checkpoint(directory: Path, build: Any, tokenizer: Any) -> None:
    """Write what ``build`` returns, with biases that are not 0: a bias that is lost on the way would not be seen."""
    import torch

    from regft_core.models.load import quiet

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(20)
        model = build()
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                if name.endswith("bias"):
                    parameter.normal_(0.0, 0.05)
    with quiet():
        model.save_pretrained(directory)
        tokenizer.save_pretrained(directory)


def word_tokenizer(special: Sequence[str], single: str, pair: str, *, segments: bool, padding: str = "right") -> Any:
    """Return a fast WordPiece tokenizer; words outside the vocabulary are spelt in letters.

    ``special``: tokens of beginning, padding, end, unknown letters and mask. ``single`` and ``pair`` are templates of
    ``tokenizers``; ``segments``: the model reads token types.
    """
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers
    from tokenizers.processors import TemplateProcessing
    from transformers import PreTrainedTokenizerFast

    cls, pad, sep, unk, mask = special
    symbols = [*"abcdefghijklmnopqrstuvwxyz0123456789.,?!'-"]
    tokens = [*special, *symbols, *(f"##{letter}" for letter in symbols[:36]), *WORDS.split()]
    vocabulary = {token: index for index, token in enumerate(dict.fromkeys(tokens))}
    core = Tokenizer(models.WordPiece(vocab=vocabulary, unk_token=unk))
    core.normalizer = normalizers.BertNormalizer(lowercase=True)
    core.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    core.decoder = decoders.WordPiece()
    core.post_processor = TemplateProcessing(
        single=single, pair=pair, special_tokens=[(cls, vocabulary[cls]), (sep, vocabulary[sep])]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=core,
        cls_token=cls,
        pad_token=pad,
        sep_token=sep,
        unk_token=unk,
        mask_token=mask,
        model_max_length=160,
        model_input_names=["input_ids", *(["token_type_ids"] if segments else []), "attention_mask"],
        padding_side=padding,
    )
