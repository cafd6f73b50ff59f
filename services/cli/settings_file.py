"""Reading a settings file for a service verb: every problem is a sentence on stderr.

Apart because all service verbs read theirs alike.
"""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from services.wire.config.settings_source import Settings, SettingsError, load_settings

S = TypeVar("S", bound=Settings)


def read_settings(
    verb: str, model: type[S], file: Path, environment: Mapping[str, str], flags: Mapping[str, Any]
) -> S | None:
    """Return the settings of `verb`, None after having said what is wrong with them."""
    try:
        return load_settings(model, file.read_text(), str(file), environment, flags)
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        print(f"gir {verb}: cannot read {file}: {reason}", file=sys.stderr)
    except SettingsError as error:
        for problem in error.problems:
            print(f"gir {verb}: {problem}", file=sys.stderr)
    return None
