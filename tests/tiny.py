"""Tiny random checkpoints of every supported family, written locally in well under a second each.

Shared by all tests: hidden size 32, 2 layers, 2 heads, a vocabulary of letters and everyday words
with a working fast tokenizer in the family's own format (special tokens, segments, padding side).
Everything is a pure function of the architecture, so two calls write the same bytes.
"""

from __future__ import annotations

import atexit
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from regft_core.contract.trial import BERT_TOKENS, BLOCKS, SIZES, vocabulary, write_checkpoint

ARCHITECTURES = [
    *("bert", "roberta", "electra", "xlnet", "deberta", "deberta-v2", "bart", "distilbert", "albert", "mpnet"),
    *("modernbert", "eurobert", "gte"),
]

#: Families of text embedders, which have no head of their own: with the pooling that each was trained for.
EMBEDDERS = {"qwen3": "last", "gemma3_text": "mean"}

#: Families with a masked LM over their input positions.
MASKED_LM_ARCHITECTURES = ARCHITECTURES

_DECODER: dict[str, Any] = {"num_key_value_heads": 1, "head_dim": 16, "attention_dropout": 0.1}


def scratch_folder() -> Path:
    """A folder for as long as this process lives: for what is cached over tests, which no fixture can take away."""
    folder = tempfile.mkdtemp(prefix="regft-tiny-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)


def tiny_model_dir(tmp_path: Path, architecture: str, *, masked_lm: bool = False, **changes: int) -> Path:
    """Write a tiny checkpoint with its tokenizer under ``tmp_path`` and return its directory.

    Args:
        architecture: one of ``ARCHITECTURES``.
        masked_lm: save the masked-LM class, with its head (but, as usual, without a pooler).
        changes: other values of its configuration: ``num_hidden_layers``, ``hidden_size``.
    """
    from transformers import AutoModel, AutoModelForCausalLM, AutoModelForMaskedLM

    directory = tmp_path / f"tiny-{architecture}{'-mlm' if masked_lm else ''}"
    if (directory / "tokenizer.json").is_file():
        return directory
    tokenizer = tiny_tokenizer(architecture)
    auto: Any = AutoModel
    if masked_lm:
        auto = AutoModelForCausalLM if architecture == "xlnet" else AutoModelForMaskedLM
    # GTE's encoder has no pooler unless asked for one.
    pooler = {"add_pooling_layer": True} if architecture == "gte" and not masked_lm else {}
    config = tiny_config(architecture, tokenizer)
    for name, value in changes.items():
        setattr(config, name, value)
    write_checkpoint(directory, lambda: auto.from_config(config, **pooler), tokenizer)
    return directory


def _tenths(*names: str) -> dict[str, float]:
    return dict.fromkeys(names, 0.1)


def tiny_config(architecture: str, tokenizer: Any) -> Any:
    """Return the configuration of the tiny model; every dropout it has is 0.1."""
    from transformers import AutoConfig

    ids = {"vocab_size": len(tokenizer), "pad_token_id": tokenizer.pad_token_id}
    ends = {"bos_token_id": tokenizer.cls_token_id, "eos_token_id": tokenizer.sep_token_id}
    own: dict[str, dict[str, Any]] = {
        "bert": SIZES,
        "roberta": {**SIZES, "type_vocab_size": 1},
        "electra": {**SIZES, "embedding_size": 16},
        "xlnet": {
            **{"d_model": 32, "n_layer": 2, "n_head": 2, "d_inner": 64},
            **_tenths("dropout", "initializer_range", "summary_last_dropout"),
        },
        "deberta": {**SIZES, "relative_attention": True, "pos_att_type": ["c2p", "p2c"], "pooler_dropout": 0.1},
        "deberta-v2": {
            **SIZES,
            "relative_attention": True,
            "pos_att_type": ["c2p", "p2c"],
            "position_buckets": 8,
            "norm_rel_ebd": "layer_norm",
            "conv_kernel_size": 3,
            "pooler_dropout": 0.1,
            "position_biased_input": False,
            "type_vocab_size": 0,
        },
        "bart": {
            **{"d_model": 32, "max_position_embeddings": 160, **ends},
            **{"encoder_layers": 2, "encoder_attention_heads": 2, "encoder_ffn_dim": 64},
            **{"decoder_layers": 2, "decoder_attention_heads": 2, "decoder_ffn_dim": 64},
            **_tenths("dropout", "attention_dropout", "activation_dropout", "classifier_dropout", "init_std"),
            **dict.fromkeys(("decoder_start_token_id", "forced_eos_token_id"), tokenizer.sep_token_id),
        },
        "distilbert": {
            **{"dim": 32, "n_layers": 2, "n_heads": 2, "hidden_dim": 64, "max_position_embeddings": 160},
            **_tenths("dropout", "attention_dropout", "seq_classif_dropout", "initializer_range"),
        },
        "albert": {**SIZES, "embedding_size": 16, "classifier_dropout_prob": 0.1},
        "mpnet": SIZES,
        "gte": SIZES,
        "modernbert": {
            **BLOCKS,
            # Every second layer looks at 4 tokens to each side only.
            "global_attn_every_n_layers": 2,
            "local_attention": 8,
            **_tenths("attention_dropout", "embedding_dropout", "mlp_dropout", "classifier_dropout"),
            **{**ends, "cls_token_id": tokenizer.cls_token_id, "sep_token_id": tokenizer.sep_token_id},
        },
        "eurobert": {
            **{**BLOCKS, **ends, "mask_token_id": tokenizer.mask_token_id},
            **{"num_key_value_heads": 1, "attention_dropout": 0.1},
        },
        # As in Qwen3-Embedding, the padding token is also the one that ends a text, and no padding is declared.
        "qwen3": {**BLOCKS, **_DECODER, "max_position_embeddings": 160, "pad_token_id": None},
        "gemma3_text": {
            **BLOCKS,
            **_DECODER,
            "use_bidirectional_attention": True,
            # Every second layer looks at 4 tokens to each side only.
            "layer_types": ["sliding_attention", "full_attention"],
            "sliding_window": 8,
            "query_pre_attn_scalar": 16,
        },
    }
    if architecture in EMBEDDERS:
        return AutoConfig.for_model(architecture, **{**ids, **own[architecture]})
    return AutoConfig.for_model(architecture, **{**own[architecture], **ids})


def tiny_tokenizer(architecture: str) -> Any:
    """Return a fast tokenizer with the special tokens and layout of the family."""
    cls, pad, sep, unk, mask = BERT_TOKENS
    single, pair = f"{cls}:0 $A:0 {sep}:0", f"{cls}:0 $A:0 {sep}:0 $B:1 {sep}:1"
    if architecture in ("roberta", "bart", "mpnet"):
        cls, pad, sep, unk, mask = "<s>", "<pad>", "</s>", "<unk>", "<mask>"
        single, pair = f"{cls} $A {sep}", f"{cls} $A {sep} {sep} $B {sep}"
    elif architecture == "qwen3":
        cls, pad, sep, unk, mask = "<|cls|>", "<|endoftext|>", "<|endoftext|>", "<|unk|>", "<|mask|>"
        single, pair = f"$A:0 {sep}:0", f"$A:0 $B:1 {sep}:0"
    elif architecture == "xlnet":
        cls, pad, sep, unk, mask = "<cls>", "<pad>", "<sep>", "<unk>", "<mask>"
        single, pair = f"$A:0 {sep}:0 {cls}:2", f"$A:0 {sep}:0 $B:1 {sep}:1 {cls}:2"
    plain = ("roberta", "bart", "distilbert", "mpnet", "modernbert", "eurobert", *EMBEDDERS)
    return word_tokenizer(
        (cls, pad, sep, unk, mask),
        single,
        pair,
        segments=architecture not in plain,
        padding="left" if architecture in ("xlnet", "qwen3") else "right",
    )


def word_tokenizer(special: Sequence[str], single: str, pair: str, *, segments: bool, padding: str = "right") -> Any:
    """Return a fast WordPiece tokenizer; words outside the vocabulary are spelt in letters.

    ``special``: tokens of beginning, padding, end, unknown letters and mask. ``single`` and ``pair`` are templates of
    ``tokenizers``; ``segments``: the model reads token types.
    """
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers
    from tokenizers.processors import TemplateProcessing
    from transformers import PreTrainedTokenizerFast

    cls, pad, sep, unk, mask = special
    ids = vocabulary(special)
    core = Tokenizer(models.WordPiece(vocab=ids, unk_token=unk))
    core.normalizer = normalizers.BertNormalizer(lowercase=True)
    core.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    core.decoder = decoders.WordPiece()
    core.post_processor = TemplateProcessing(
        single=single, pair=pair, special_tokens=[(cls, ids[cls]), (sep, ids[sep])]
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
