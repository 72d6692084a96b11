"""Print a generated file: ``python -m reach_worker.settings reference``, ``… schema`` or ``… adapter-schema``.

The first is ``config/reach.yaml``, the second ``reach_worker/core/manifest.schema.json``, the third
``reach_worker/adapters/agent_file.schema.json``.
"""

import json
import sys

from reach_worker.adapters.file_schema import agent_file_json_schema
from reach_worker.core.manifest import manifest_json_schema
from reach_worker.settings.reference import render_reference


def main(arguments: list[str]) -> int:
    """Write the file that is asked for to standard output; 2 if none of them is."""
    match arguments:
        case ["reference"]:
            sys.stdout.write(render_reference())
        case ["schema"]:
            sys.stdout.write(json.dumps(manifest_json_schema(), indent=2, ensure_ascii=False) + "\n")
        case ["adapter-schema"]:
            sys.stdout.write(json.dumps(agent_file_json_schema(), indent=2, ensure_ascii=False) + "\n")
        case _:
            sys.stderr.write(__doc__ or "")
            return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
