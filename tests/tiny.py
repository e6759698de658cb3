"""Tiny random checkpoints of every supported family, written locally in well under a second each.

Shared by all tests: hidden size 32, 2 layers, 2 heads, a vocabulary of letters and everyday words
with a working fast tokenizer in the family's own format (special tokens, segments, padding side).
Everything is a pure function of the architecture, so two calls write the same bytes.
"""

from __future__ import annotations

import atexit
import shutil
import tempfile
from pathlib import Path
from typing import Any

ARCHITECTURES = [
    *("bert", "roberta", "electra", "xlnet", "deberta", "deberta-v2", "bart", "distilbert", "albert", "mpnet"),
    *("modernbert", "eurobert", "gte"),
]

#: Families of text embedders, which have no head of their own: with the pooling that each was trained for.
EMBEDDERS = {"qwen3": "last", "gemma3_text": "mean"}

#: Families with a masked LM over their input positions.
MASKED_LM_ARCHITECTURES = ARCHITECTURES

_WORDS = (
    "the a is was it not and or but very good bad great poor film movie story plot actor music food place service "
    "he she they we you i this that who what when where how all some no yes one two three red blue green new old "
    "big small fast slow happy sad love hate see go say think make take day night man woman child dog cat house"
)

_BLOCKS: dict[str, Any] = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 64,
    "max_position_embeddings": 160,
    # Larger than usual, so that a change at one site is visible in the logits of so small a model.
    "initializer_range": 0.1,
}
_DECODER: dict[str, Any] = {"num_key_value_heads": 1, "head_dim": 16, "attention_dropout": 0.1}
_SIZES: dict[str, Any] = {**_BLOCKS, "hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1}


def scratch_folder() -> Path:
    """A folder for as long as this process lives: for what is cached over tests, which no fixture can take away."""
    folder = tempfile.mkdtemp(prefix="regft-tiny-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)


def tiny_model_dir(tmp_path: Path, architecture: str, *, masked_lm: bool = False, layers: int | None = None) -> Path:
    """Write a tiny checkpoint with its tokenizer under ``tmp_path`` and return its directory.

    Args:
        architecture: one of ``ARCHITECTURES``.
        masked_lm: save the masked-LM class, with its head (but, as usual, without a pooler).
        layers: another number than two.
    """
    import torch
    from transformers import AutoModel, AutoModelForCausalLM, AutoModelForMaskedLM

    from regft_core.models.load import quiet

    directory = tmp_path / f"tiny-{architecture}{'-mlm' if masked_lm else ''}"
    if (directory / "tokenizer.json").is_file():
        return directory
    tokenizer = tiny_tokenizer(architecture)
    auto: Any = AutoModel
    if masked_lm:
        auto = AutoModelForCausalLM if architecture == "xlnet" else AutoModelForMaskedLM
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(20)
        # GTE's encoder has no pooler unless asked for one.
        pooler = {"add_pooling_layer": True} if architecture == "gte" and not masked_lm else {}
        config = tiny_config(architecture, tokenizer)
        if layers is not None:
            config.num_hidden_layers = layers
        model = auto.from_config(config, **pooler)
        with torch.no_grad():  # initial biases are zero, which would hide a bias that is lost on the way
            for name, parameter in model.named_parameters():
                if name.endswith("bias"):
                    parameter.normal_(0.0, 0.05)
    with quiet():
        model.save_pretrained(directory)
        tokenizer.save_pretrained(directory)
    return directory


def tiny_config(architecture: str, tokenizer: Any) -> Any:
    """Return the configuration of the tiny model; every dropout it has is 0.1."""
    from transformers import AutoConfig

    ids = {"vocab_size": len(tokenizer), "pad_token_id": tokenizer.pad_token_id}
    own: dict[str, dict[str, Any]] = {
        "bert": _SIZES,
        "roberta": {**_SIZES, "type_vocab_size": 1},
        "electra": {**_SIZES, "embedding_size": 16},
        "xlnet": {
            "d_model": 32,
            "n_layer": 2,
            "n_head": 2,
            "d_inner": 64,
            "dropout": 0.1,
            "initializer_range": 0.1,
            "summary_last_dropout": 0.1,
        },
        "deberta": {**_SIZES, "relative_attention": True, "pos_att_type": ["c2p", "p2c"], "pooler_dropout": 0.1},
        "deberta-v2": {
            **_SIZES,
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
            "d_model": 32,
            "encoder_layers": 2,
            "decoder_layers": 2,
            "encoder_attention_heads": 2,
            "decoder_attention_heads": 2,
            "encoder_ffn_dim": 64,
            "decoder_ffn_dim": 64,
            "max_position_embeddings": 160,
            "dropout": 0.1,
            "attention_dropout": 0.1,
            "activation_dropout": 0.1,
            "classifier_dropout": 0.1,
            "init_std": 0.1,
            "bos_token_id": tokenizer.cls_token_id,
            "eos_token_id": tokenizer.sep_token_id,
            "decoder_start_token_id": tokenizer.sep_token_id,
            "forced_eos_token_id": tokenizer.sep_token_id,
        },
        "distilbert": {
            "dim": 32,
            "n_layers": 2,
            "n_heads": 2,
            "hidden_dim": 64,
            "max_position_embeddings": 160,
            "dropout": 0.1,
            "attention_dropout": 0.1,
            "seq_classif_dropout": 0.1,
            "initializer_range": 0.1,
        },
        "albert": {**_SIZES, "embedding_size": 16, "classifier_dropout_prob": 0.1},
        "mpnet": _SIZES,
        "gte": _SIZES,
        "modernbert": {
            **_BLOCKS,
            # Every second layer looks at 4 tokens to each side only.
            "global_attn_every_n_layers": 2,
            "local_attention": 8,
            "attention_dropout": 0.1,
            "embedding_dropout": 0.1,
            "mlp_dropout": 0.1,
            "classifier_dropout": 0.1,
            "bos_token_id": tokenizer.cls_token_id,
            "eos_token_id": tokenizer.sep_token_id,
            "cls_token_id": tokenizer.cls_token_id,
            "sep_token_id": tokenizer.sep_token_id,
        },
        "eurobert": {
            **_BLOCKS,
            "num_key_value_heads": 1,
            "attention_dropout": 0.1,
            "bos_token_id": tokenizer.cls_token_id,
            "eos_token_id": tokenizer.sep_token_id,
            "mask_token_id": tokenizer.mask_token_id,
        },
        # As in Qwen3-Embedding, the padding token is also the one that ends a text, and no padding is declared.
        "qwen3": {**_BLOCKS, **_DECODER, "max_position_embeddings": 160, "pad_token_id": None},
        "gemma3_text": {
            **_BLOCKS,
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
    """Return a fast WordPiece tokenizer with the special tokens and layout of the family.

    Words outside the vocabulary are spelt in letters, so any lower- or upper-case text works.
    """
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers
    from tokenizers.processors import TemplateProcessing
    from transformers import PreTrainedTokenizerFast

    if architecture in ("roberta", "bart", "mpnet"):
        cls, pad, sep, unk, mask = "<s>", "<pad>", "</s>", "<unk>", "<mask>"
        single, pair = f"{cls} $A {sep}", f"{cls} $A {sep} {sep} $B {sep}"
    elif architecture == "qwen3":
        cls, pad, sep, unk, mask = "<|cls|>", "<|endoftext|>", "<|endoftext|>", "<|unk|>", "<|mask|>"
        single, pair = f"$A:0 {sep}:0", f"$A:0 $B:1 {sep}:0"
    elif architecture == "xlnet":
        cls, pad, sep, unk, mask = "<cls>", "<pad>", "<sep>", "<unk>", "<mask>"
        single, pair = f"$A:0 {sep}:0 {cls}:2", f"$A:0 {sep}:0 $B:1 {sep}:1 {cls}:2"
    else:
        cls, pad, sep, unk, mask = "[CLS]", "[PAD]", "[SEP]", "[UNK]", "[MASK]"
        single, pair = f"{cls}:0 $A:0 {sep}:0", f"{cls}:0 $A:0 {sep}:0 $B:1 {sep}:1"
    # The order of the list fixes the ids; RoBERTa counts positions from pad_token_id + 1.
    symbols = [*"abcdefghijklmnopqrstuvwxyz0123456789.,?!'-"]
    tokens = [cls, pad, sep, unk, mask, *symbols, *(f"##{letter}" for letter in symbols[:36]), *_WORDS.split()]
    vocabulary = {token: index for index, token in enumerate(dict.fromkeys(tokens))}
    core = Tokenizer(models.WordPiece(vocab=vocabulary, unk_token=unk))
    core.normalizer = normalizers.BertNormalizer(lowercase=True)
    core.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    core.decoder = decoders.WordPiece()
    core.post_processor = TemplateProcessing(
        single=single, pair=pair, special_tokens=[(cls, vocabulary[cls]), (sep, vocabulary[sep])]
    )
    names = ["input_ids", "attention_mask"]
    if architecture not in ("roberta", "bart", "distilbert", "mpnet", "modernbert", "eurobert", *EMBEDDERS):
        names.insert(1, "token_type_ids")
    return PreTrainedTokenizerFast(
        tokenizer_object=core,
        cls_token=cls,
        pad_token=pad,
        sep_token=sep,
        unk_token=unk,
        mask_token=mask,
        model_max_length=160,
        model_input_names=names,
        padding_side="left" if architecture in ("xlnet", "qwen3") else "right",
    )
