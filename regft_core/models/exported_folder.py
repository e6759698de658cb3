"""An exported classifier on disk, as transformers reads it without regft.

Where it has not the family's own head, ``modeling_regft.py`` is beside it, which regft itself never runs from there.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor
from transformers import AutoModelForSequenceClassification

from regft_core.catalogue import POOLINGS
from regft_core.data.batches import padding_of
from regft_core.disk.reading import read_json
from regft_core.errors import ModelError
from regft_core.models import modeling_regft
from regft_core.models.checkpoint_files import is_implementation, plain_config, refuse_outside
from regft_core.models.devices import take_fast_products
from regft_core.models.export_record import Served
from regft_core.models.heads import MaskClassifier, PooledClassifier
from regft_core.models.load import quiet, read_tokenizer
from regft_core.models.modeling_regft import RegftClassifier, RegftConfig
from regft_core.models.sites import takes_token_types

CODE = "modeling_regft.py"
#: A length that no tokenizer cuts at.
_NO_LIMIT = 1_000_000_000


def write_classifier(
    model: Any, tokenizer: Any, directory: Path, max_length: int, served: Served, temperature: float
) -> int:
    """Write configuration and weights of a plain classifier; return the length to which its tokenizer truncates."""
    if not isinstance(model, PooledClassifier | MaskClassifier) and not served.instruction:
        model.save_pretrained(directory)
        return max_length
    config = _config(model, tokenizer, max_length, served)
    config.logit_temperature = temperature
    pooled, state = isinstance(model, PooledClassifier), model.state_dict()
    if isinstance(model, MaskClassifier):  # the configuration has them
        state = {name: tensor for name, tensor in state.items() if name not in ("label_words", "mask_token")}
    prefix = f"{model.base_model_prefix}." if pooled else ""
    # A tensor that two modules share is written once, by its first name: transformers ties them again.
    first = {tensor.data_ptr(): name for name, tensor in reversed(state.items())}
    names = {
        name: name if pooled and name.startswith("classifier.") else f"encoder.{name.removeprefix(prefix)}"
        for name in state
        if name in first.values()
    }
    tensors = {written: state[name].detach().contiguous() for name, written in names.items()}
    config.save_pretrained(directory)
    save_file(tensors, str(directory / "model.safetensors"), metadata={"format": "pt"})
    shutil.copyfile(modeling_regft.__file__, directory / CODE)
    return _truncated_length(config)


def load_with_tokenizer(directory: Path) -> tuple[Any, Any]:
    """Return the classifier of a directory, on the CPU, and its tokenizer. ModelError where they do not fit."""
    refuse_outside(directory)
    take_fast_products()
    try:
        with quiet():
            model, info = _read(directory)
    except Exception as error:  # missing or damaged files, unknown families: each library has its own errors
        message = f"{directory}: the model cannot be loaded: {error}"
        raise ModelError("cannot-load", f"{message}\n    -> export it again") from error
    if absent := sorted(info["missing_keys"]):
        # transformers would draw them at random and predict nonsense.
        message = f"{directory}: weights are missing, among them {', '.join(absent[:3])}"
        raise ModelError("weights-missing", f"{message}\n    -> give a directory that `regft export` wrote")
    if unused := sorted(info["unexpected_keys"]):
        message = f"{directory}: config.json does not use {', '.join(unused[:3])}, one of {len(unused)} such weights"
        hint = "put config.json and weights of one model there, or export it again"
        raise ModelError("weights-do-not-fit", f"{message}\n    -> {hint}")
    model = _as_trained(model) if isinstance(model, RegftClassifier) else model
    tokenizer = read_tokenizer(directory, str(directory), model.config.model_type)
    rows = model.get_input_embeddings().num_embeddings
    if beyond := [token for token, number in tokenizer.get_vocab().items() if number >= rows]:
        message = f"{directory}: the tokenizer has tokens ({beyond[0]!r}) beyond the {rows} rows of the embedding"
        hint = "put tokenizer and weights of one model there, or export it again"
        raise ModelError("weights-do-not-fit", f"{message}\n    -> {hint}")
    return model, tokenizer


def _read(directory: Path, **attention: str) -> tuple[Any, dict[str, Any]]:
    """The model of a folder in evaluation mode, and what loading it said; raises what transformers raises."""
    own = read_json(directory / "config.json", dict).get("model_type") == RegftConfig.model_type
    config = RegftConfig.from_pretrained(directory) if own else plain_config(directory)
    if own:  # without kernels or code of its own, as a plain one
        config.encoder = {key: value for key, value in config.encoder.items() if not is_implementation(key)}
    auto: Any = RegftClassifier if own else AutoModelForSequenceClassification
    options = {"local_files_only": True, "use_safetensors": True, "output_loading_info": True, "dtype": torch.float32}
    model, info = auto.from_pretrained(directory, config=config, **options, **({} if own else attention))
    return model.eval(), info


def _as_trained(model: RegftClassifier) -> Any:
    """The classifier that regft trains and scores, with the weights of an exported one."""
    config = model.config
    if config.pooling == "head":
        return model.encoder
    if config.pooling == "mask":
        classifier = MaskClassifier(model.encoder)
        classifier.label_words.copy_(torch.tensor(config.label_words))
        classifier.mask_token.fill_(config.mask_token)
        return classifier.eval()
    pooling = "cls" if config.pooling == "first" else config.pooling
    pooled = PooledClassifier(model.encoder, pooling=pooling, rows_per_example=2 if config.separate else 1)
    pooled.classifier = model.classifier
    return pooled.eval()


def logits_of_folder(directory: Path, batch: Mapping[str, Tensor], model: Any) -> Tensor:
    """Logits [B, K] from nothing but the files in ``directory``, on the device and with the attention of ``model``."""
    loaded, _ = _read(directory, attn_implementation=model.config._attn_implementation)
    loaded = loaded.to(model.device)
    inputs = {name: value.to(model.device) for name, value in batch.items()}
    if not takes_token_types(model):
        inputs.pop("token_type_ids", None)
    with torch.no_grad():
        own = isinstance(loaded, RegftClassifier)
        logits: Tensor = loaded.logits(**inputs) if own else loaded(**inputs).logits
    return logits.view(len(logits), -1)


def _config(model: Any, tokenizer: Any, max_length: int, served: Served) -> RegftConfig:
    before, between, after, types = _added(tokenizer, takes_token_types(model))
    padding = padding_of(tokenizer)
    mask = isinstance(model, MaskClassifier)
    each = getattr(model, "rows_per_example", 1)
    pooling = model.pooling if mask or isinstance(model, PooledClassifier) else "head"
    if pooling in ("cls", "last"):
        pooling = model.summary
    elif pooling not in ("head", "mask") and not POOLINGS.is_shipped(pooling):
        message = f"model.pooling: {pooling} is a file of your own, and an export knows the shipped ones only"
        raise ModelError("pooling-not-exported", f"{message}\n    -> set model: {{pooling: mean}}, or keep the run")
    config = RegftConfig(
        encoder=model.config.to_dict(),
        pooling=pooling,
        layers=getattr(model, "layers", 1),
        row_length=max_length,
        windows=served.windows,
        stride=served.stride,
        paired=served.text_pair is not None or each == 2,
        separate=each == 2,
        before=before,
        between=between,
        after=after,
        types=types,
        pad=(padding.pad_id, padding.pad_token_type_id),
        left=padding.side == "left",
        keeps_end=tokenizer.truncation_side == "left" and not served.instruction and served.windows == 1,
        instruction={"text": served.instruction, "ids": _instruction(tokenizer, served.instruction)},
        label_words=model.label_words.tolist() if mask else (),
        mask_token=int(model.mask_token) if mask else -1,
        demonstrations=bool(served.prompt and served.prompt.demonstrations),
        id2label=dict(model.config.id2label),
        label2id=dict(model.config.label2id),
        problem_type=model.config.problem_type,
        architectures=[RegftClassifier.__name__],
    )
    names = {"AutoConfig": "RegftConfig", "AutoModelForSequenceClassification": "RegftClassifier"}
    config.auto_map = {auto: f"{CODE.removesuffix('.py')}.{name}" for auto, name in names.items()}
    return config


def _added(tokenizer: Any, typed: bool) -> tuple[list[int], list[int], list[int], list[Any]]:
    """Ids of the tokens before, between (if they can be told apart) and after texts, and the token types of a text."""
    rows = [tokenizer(*texts, return_token_type_ids=True) for texts in (("a",), ("a", "a"))]
    parts = [row.sequence_ids(0) for row in rows]
    single, pair = (row["input_ids"] for row in rows)
    first, last = parts[0].index(0), len(parts[0]) - parts[0][::-1].index(0)
    before, after = single[:first], single[last:]
    end = max(place for place, part in enumerate(parts[1]) if part == 0) + 1
    between = pair[end : parts[1].index(1)]
    same = pair[:first] == before and pair[len(pair) - len(after) :] == after
    of_single = rows[0]["token_type_ids"]
    types = [of_single[:first], of_single[first], of_single[last:]] if typed else []
    return before, between if same else [], after, types


def _instruction(tokenizer: Any, instruction: str) -> list[int]:
    """Token ids of an instruction before a text: those that end within it."""
    if not instruction:
        return []
    row = tokenizer(f"{instruction}a", return_offsets_mapping=True, add_special_tokens=False)
    pairs = zip(row["input_ids"], row["offset_mapping"], strict=True)
    return [token for token, (_, stop) in pairs if stop <= len(instruction)]


def _truncated_length(config: RegftConfig) -> int:
    """Tokens of an input of which the classifier reads every one; longer ones are cut by it as in training."""
    if config.pooling == "mask" or (config.paired and not config.separate):
        return int(config.row_length) if config.windows == 1 and config.pooling != "mask" else _NO_LIMIT
    around, begun = len(config.before) + len(config.after), len(config.instruction["ids"])
    room = config.row_length - around - begun
    content = begun + room + (config.windows - 1) * (room - config.stride)
    return int(around + (len(config.between) + 2 * content if config.separate else content))
