"""JSON Schema of an adapter's file, for editors; ``agent_file.schema.json`` beside this module holds it."""

from typing import Any

from reach_worker.adapters.agents import KINDS
from reach_worker.core.manifest import manifest_json_schema


def agent_file_json_schema() -> dict[str, Any]:
    """The manifest's schema, with an ``adapter`` section of one of the kinds."""
    schema = manifest_json_schema()
    definitions = dict(schema.get("$defs", {}))
    kinds = {}
    for name, kind in KINDS.items():
        section = kind.section_type().model_json_schema()
        definitions |= section.pop("$defs", {})
        definitions[section["title"]] = {**section, "required": ["kind", *section.get("required", [])]}
        kinds[name] = {"$ref": f"#/$defs/{section['title']}"}
    adapter = {"description": "how to reach what does the work", "oneOf": list(kinds.values())}
    return {
        **schema,
        "title": "reach_worker agent that is an adapter",
        "$defs": definitions,
        "properties": {**schema["properties"], "adapter": adapter},
        "required": [*schema["required"], "adapter"],
    }
