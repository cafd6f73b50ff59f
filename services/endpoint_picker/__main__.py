"""`python -m services.endpoint_picker FILE`: the picker of one cluster without the `gir` command."""

import os
import sys
from pathlib import Path

import uvloop

from services.endpoint_picker.serve import WRONG_SETTINGS, serve
from services.endpoint_picker.settings import PickerSettings
from services.wire.config.settings_source import SettingsError, load_settings


def main() -> int:
    if len(sys.argv) != 2:
        sys.stderr.write("usage: python -m services.endpoint_picker FILE\n")
        return WRONG_SETTINGS
    try:
        settings = load_settings(PickerSettings, Path(sys.argv[1]).read_text(), sys.argv[1], os.environ)
    except (OSError, UnicodeDecodeError, SettingsError) as error:
        sys.stderr.write(f"{error}\n")
        return WRONG_SETTINGS
    return uvloop.run(serve(settings))


if __name__ == "__main__":
    sys.exit(main())
