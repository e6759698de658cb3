"""An exported folder on the Hugging Face hub, when somebody asks for it."""

from __future__ import annotations

from pathlib import Path

from regft_core.errors import ModelError


def push(folder: Path, repository: str) -> str:
    """Upload the files of an export as one commit; return its address. A repository that is not there is made, private.

    Args:
        repository: ``OWNER/NAME`` on the hub of ``HF_ENDPOINT``, with the token that ``hf auth login`` has stored.

    Raises ModelError where the hub refuses it or cannot be reached; the folder stays.
    """
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError

    api = HfApi()
    try:
        if not api.repo_exists(repository):
            api.create_repo(repository, private=True)
        message = f"Export {folder.name} of regft"
        return str(api.upload_folder(repo_id=repository, folder_path=folder, commit_message=message).commit_url)
    except (HfHubHTTPError, OSError, ValueError) as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        hint = f"log in with `hf auth login`, check OWNER/NAME, then: hf upload {repository} {folder}"
        raise ModelError("push-refused", f"--push {repository}: {reason}\n    -> {hint}") from error
