"""Health stories as text: a command, `----`, what it shows; a blank line ends an example.

Run with `--rewrite` to record what the stories show now, and read the diff.
"""

from pathlib import Path

import pytest

from tests.scenarios.health.story import Story

STORIES = sorted(Path(__file__).parent.glob("*.txt"))
SEPARATOR = "----"


def perform(text: str) -> str:
    """Return the story with each example's output as it is now; prose and comments stay as written."""
    story = Story()
    paragraphs = []
    for paragraph in text.strip("\n").split("\n\n"):
        head, separator, _ = paragraph.partition(f"\n{SEPARATOR}")
        if separator:
            commands = [line for line in head.splitlines() if not line.startswith("#")]
            shown = "\n".join(story.play(command) for command in commands)
            paragraphs.append(f"{head}\n{SEPARATOR}\n{shown}")
        else:
            paragraphs.append(paragraph)
    return "\n\n".join(paragraphs) + "\n"


@pytest.mark.parametrize("path", STORIES, ids=lambda path: path.stem)
def test_story(path: Path, pytestconfig: pytest.Config) -> None:
    told = path.read_text()
    shown = perform(told)
    if pytestconfig.getoption("--rewrite", default=False):
        path.write_text(shown)
    else:
        assert shown == told


def test_every_story_has_examples() -> None:
    """A file whose separator is misspelt would be all prose and could not fail."""
    assert len(STORIES) >= 15
    for path in STORIES:
        assert path.read_text().count(f"\n{SEPARATOR}\n") >= 2, path.name
