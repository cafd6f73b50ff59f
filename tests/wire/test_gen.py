"""The generated code and the protos: current, and compatible with everything ever written."""

import subprocess
import sys
from pathlib import Path

from google.protobuf.descriptor import Descriptor, FieldDescriptor, FileDescriptor

from services.wire.gen.gir.v1 import health_pb2, picker_pb2, pods_pb2, policy_pb2, residency_pb2, routing_pb2

ROOT = Path(__file__).parents[2]
LOCK = Path(__file__).parent / "golden" / "fields.txt"
FILES: tuple[FileDescriptor, ...] = tuple(
    module.DESCRIPTOR for module in (health_pb2, picker_pb2, pods_pb2, policy_pb2, residency_pb2, routing_pb2)
)


def test_regenerating_changes_nothing() -> None:
    check = subprocess.run(
        [sys.executable, str(ROOT / "protos" / "generate.py"), "--check"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert check.returncode == 0, check.stdout + check.stderr


def test_every_proto_is_covered_here() -> None:
    protos = {str(path.relative_to(ROOT / "protos")) for path in (ROOT / "protos").rglob("*.proto")}
    assert protos == {file.name for file in FILES}


def test_no_field_or_value_changes_number_type_or_meaning() -> None:
    """A line leaves this list only for `reserved`, and then with the name and number of a removed field."""
    locked = LOCK.read_text().splitlines()
    current = [line for file in FILES for line in _lines(file)]
    assert not [line for line in locked if line not in current], "changed or removed"
    assert not [line for line in current if line not in locked], f"new: add these lines to {LOCK.name}"


def _lines(file: FileDescriptor) -> list[str]:
    lines = []
    for message in file.message_types_by_name.values():
        lines += [_field_line(message, field) for field in message.fields]
    for enum in file.enum_types_by_name.values():
        lines += [f"{enum.full_name} {value.name} = {value.number}" for value in enum.values]
    for service in file.services_by_name.values():
        lines += [
            f"{method.full_name} ({method.input_type.full_name}) -> {method.output_type.full_name}"
            for method in service.methods
        ]
    return lines


def _field_line(message: Descriptor, field: FieldDescriptor) -> str:
    of = field.message_type or field.enum_type
    kind = of.full_name if of else f"type {field.type}"
    many = "repeated " if field.is_repeated else "optional " if field.has_presence else ""
    return f"{message.full_name} {many}{kind} {field.name} = {field.number}"
