"""Plain data as YAML text that ``yaml_text`` reads back as the same data, and that people like to edit."""

import re
from typing import Any, Final

import yaml

from reach_worker.core.yaml_text import SCALARS, TAG

_WIDTH: Final = 110
_ODD_LINE_ENDS: Final = "\r\x85\u2028\u2029"


class _Writer(yaml.SafeDumper):
    """Every value is written out where it stands. What either version of YAML would not take for text gets quotes."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002 - PyYAML's signature
        return True

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:  # noqa: ARG002, FBT001, FBT002 - as above
        """Lists are indented below their key."""
        super().increase_indent(flow, False)  # noqa: FBT003 - as above


def _text(writer: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    """Line ends that YAML counts as such beside the plain one are escaped; they would be read as that."""
    style = '"' if any(end in text for end in _ODD_LINE_ENDS) else None
    return writer.represent_scalar(f"{TAG}str", text, style)


_Writer.add_representer(str, _text)
for _name, (_pattern, _first) in SCALARS.items():
    _Writer.add_implicit_resolver(TAG + _name, re.compile(_pattern), _first)


def write_yaml(data: Any) -> str:
    """The text. Mappings keep their order."""
    return yaml.dump(data, Dumper=_Writer, sort_keys=False, allow_unicode=True, width=_WIDTH)
