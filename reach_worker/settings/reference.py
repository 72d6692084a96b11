"""The settings written out as a commented file: every field, its meaning, its default."""

import json
from collections.abc import Iterator
from inspect import cleandoc
from pathlib import Path
from typing import Final

from pydantic import BaseModel

from reach_worker.settings.model import Settings

_HEAD: Final = """\
# The settings of reach_worker. Each line `#name: value` shows a default; take its # away to change it.
#
# An environment variable goes over the file: REACH_<SECTION>__<FIELD>, such as REACH_RETRY__MAX_RETRIES=5.
# REACH_AMQP_URL is broker.url. `reach check` says what is wrong, with file, line and field.
"""


def render_reference(model: type[Settings] = Settings) -> str:
    """The text of ``config/reach.yaml``. Read as it is, it changes nothing."""
    sections = [
        "\n".join([f"# {_summary(type(section))}", f"{name}:", *_fields(section, "  ")])
        for name, section in model()
    ]
    return "\n\n".join([_HEAD.rstrip("\n"), *sections]) + "\n"


def _fields(section: BaseModel, indent: str) -> Iterator[str]:
    for name, info in type(section).model_fields.items():
        value = getattr(section, name)
        yield f"{indent}# {info.description or ''}".rstrip()
        if isinstance(value, BaseModel):
            yield f"{indent}#{name}:"
            yield from _fields(value, indent + "  ")
        else:
            yield f"{indent}#{name}: {_yaml(value)}"


def _yaml(value: object) -> str:
    """A value on one line. JSON is YAML too; a list of one is written as its item, as people would."""
    if isinstance(value, tuple) and len(value) == 1:
        return _yaml(value[0])
    return json.dumps(value.as_posix() if isinstance(value, Path) else value, ensure_ascii=False)


def _summary(model: type[BaseModel]) -> str:
    return cleandoc(model.__doc__ or model.__name__).split("\n")[0]
