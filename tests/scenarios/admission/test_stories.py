"""Flow-control stories as text: a command, `----`, what callers are told; a blank line ends an example.

Run with `GIR_REWRITE=1` to record what the stories show now, and read the diff.
"""

import os
from pathlib import Path

import pytest

from tests.scenarios.admission.story import Story

STORIES = sorted(Path(__file__).parent.glob("*.txt"))
SEPARATOR = "----"


def perform(text: str) -> str:
    """Return the story with each example's output as it is now; prose and comments stay as written."""
    story, paragraphs = Story(), []
    for paragraph in text.strip("\n").split("\n\n"):
        head, separator, _ = paragraph.partition(f"\n{SEPARATOR}")
        if separator:
            shown = "\n".join(story.play(line) for line in head.splitlines() if not line.startswith("#"))
            paragraphs.append(f"{head}\n{SEPARATOR}\n{shown}")
        else:
            paragraphs.append(paragraph)
    return "\n\n".join(paragraphs) + "\n"


@pytest.mark.parametrize("path", STORIES, ids=lambda path: path.stem)
def test_story(path: Path) -> None:
    told = path.read_text()
    shown = perform(told)
    if os.environ.get("GIR_REWRITE"):
        path.write_text(shown)
    else:
        assert shown == told


def test_every_story_has_examples() -> None:
    """A file whose separator is misspelt would be all prose and could not fail."""
    assert len(STORIES) >= 6
    for path in STORIES:
        assert path.read_text().count(f"\n{SEPARATOR}\n") >= 2, path.name
