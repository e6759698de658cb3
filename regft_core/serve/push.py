"""An exported folder on the Hugging Face hub, when somebody asks for it."""

from __future__ import annotations

import re
from pathlib import Path

from regft_core.errors import ModelError


def check_repository(repository: str) -> None:
    """Raise ModelError for what is not ``OWNER/NAME``, before anything is trained or exported."""
    if not re.fullmatch(r"[\w.-]+/[\w.-]+", repository):
        raise ModelError(
            "bad-repository", f"--push {repository}: is not OWNER/NAME\n    -> for instance --push me/reviews"
        )


def push(folder: Path, repository: str) -> str:
    """Upload the files of an export as one commit; return its address. A repository that is not there is made, private.

    Args:
        repository: ``OWNER/NAME`` on the hub of ``HF_ENDPOINT``, with the token that ``hf auth login`` has stored.

    Raises ModelError where the hub refuses it or cannot be reached; the folder stays.
    """
    from huggingface_hub import HfApi

    api = HfApi()
    try:
        if not api.repo_exists(repository):
            api.create_repo(repository, private=True)
        message = f"Export {folder.name} of regft"
        return str(api.upload_folder(repo_id=repository, folder_path=folder, commit_message=message).commit_url)
    except Exception as error:  # the library's own, and those of what it reads the network with
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        hint = f"log in with `hf auth login`, check OWNER/NAME, then: hf upload {repository} {folder}"
        raise ModelError("push-refused", f"--push {repository}: {reason}\n    -> {hint}") from error
