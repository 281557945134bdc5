"""The tokens of clients: from the configuration, a file and the environment."""

import os
from pathlib import Path

from ordercast.errors import InputError
from ordercast.live.config import Cluster
from ordercast.live.rules import NAMES, is_name, nobodys_rights


def read_tokens(cluster: Cluster) -> dict[str, str]:
    """Return token to client name: from the configuration, its file and the environment. Sites read them, no client."""
    security = cluster.security
    found = dict(security.tokens)
    if security.tokens_file is not None:
        path = Path(cluster.folder) / security.tokens_file
        try:
            text = path.read_text("utf-8")
            shared = path.stat().st_mode & 0o077
        except OSError as error:
            raise InputError(f"{path}: {error.strerror}") from None
        except UnicodeDecodeError:
            raise InputError(f"{path}: not UTF-8") from None
        if shared:
            raise InputError(f"{path}: others can read it; chmod 600")
        _add_tokens(found, text, str(path))
    if security.tokens_env is not None:
        text = os.environ.get(security.tokens_env, "")
        if not text.strip():
            raise InputError(f"security.tokens_env: {security.tokens_env} is not set")
        _add_tokens(found, text, security.tokens_env)
    for problem in nobodys_rights(security, found):
        raise InputError(problem)
    return found


def _add_tokens(found: dict[str, str], text: str, where: str) -> None:
    """Read lines of `client token`; the errors do not tell tokens."""
    for number, line in enumerate(text.splitlines(), start=1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        if len(words) != 2 or not is_name(words[0]):
            raise InputError(f"{where}, line {number}: give a client and its token ({NAMES})")
        if found.setdefault(words[1], words[0]) != words[0]:
            raise InputError(f"{where}, line {number}: this token is another client's already")
    if not found:
        raise InputError(f"{where}: no token")
