"""Named rules of foreign documents, and what pydantic finds as path, value and rule.

A rule is a name, a clause and a test of one value; a broken one reads `name: clause`, so that a
test can break each rule and a reader can look it up. Apart from the kinds because several
families of documents (Gateway API, endpoint pickers, other gateways) are checked in this way.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from pydantic import ValidationError
from pydantic_core import PydanticCustomError

from services.wire.config.problems import path_text, value_text


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule: `holds` says whether a value keeps it. Used as a validator it returns the value or refuses it."""

    name: str
    clause: str
    holds: Callable[[Any], bool]

    def __call__(self, value: Any) -> Any:
        """Return `value` when it keeps the rule; raises pydantic's error, named after the rule."""
        if not self.holds(value):
            raise PydanticCustomError("rule", "{text}", {"text": str(self)})
        return value

    def if_given(self, value: Any) -> Any:
        """Return None for None, else the value when it keeps the rule."""
        return None if value is None else self(value)

    def __str__(self) -> str:
        """Return `name: clause`."""
        return f"{self.name}: {self.clause}"


@dataclass(frozen=True, slots=True)
class Finding:
    """One broken rule: where, which value, which rule."""

    path: str
    value: str
    rule: str

    def __str__(self) -> str:
        """Return `path: value: rule`."""
        return f"{self.path}: {self.value}: {self.rule}"


_RULES: Final[Mapping[str, str]] = {
    "missing": "is required",
    "extra_forbidden": "is not a field of this kind",
    "bool_type": "must be true or false",
    "float_type": "must be a number",
    "finite_number": "must be a finite number",
    "int_type": "must be a whole number",
    "model_type": "must be a mapping",
    "dict_type": "must be a mapping",
    "string_type": "must be text",
    "tuple_type": "must be a list",
}
"""Pydantic's words where they speak of Python types rather than of the file."""


def findings(error: ValidationError) -> Iterator[Finding]:
    """Yield what pydantic found, in the words of the file."""
    for item in error.errors(include_url=False, include_context=False):
        value = "(missing)" if item["type"] == "missing" else value_text(item["input"])
        known = _RULES.get(item["type"])
        rule = known or item["msg"].removeprefix("Value error, ").replace("Input should be", "must be", 1)
        yield Finding(path_text(item["loc"]), value, rule)
