"""The agent that a person names as ``module:name``."""

import logging
import sys
import traceback
from importlib import import_module
from pathlib import Path
from types import ModuleType

from reach_worker.agent.agent import Agent
from reach_worker.core.document import nearest
from reach_worker.errors import BadInput, Problem

log = logging.getLogger(__name__)


def agent_at(place: str, manifest: Path | None = None) -> Agent:
    """Import the module from the current folder, and take the agent in it. Raises ``BadInput``.

    ``manifest``: a file that goes over what the agent declares.
    """
    module_name, _, name = place.partition(":")
    if not all(part.isidentifier() for part in module_name.split(".")):
        hint = "write it as an import does: my_package.agents:log_analyzer"
        raise BadInput(Problem(f"{module_name!r} is no name of a module", hint=hint))
    module = _imported(module_name)
    agent = _agent(_named(module, name) if name else _only_one(module), place)
    if manifest is not None:
        agent.override(manifest)
    return agent


def _imported(name: str) -> ModuleType:
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and f"{name}.".startswith(f"{error.name}."):
            hint = f"it is looked for in {here} first; known beside it: {_modules_here() or 'none'}"
            raise BadInput(Problem(f"there is no module {error.name!r}", hint=hint)) from None
        raise _broken(name, error) from error
    except BadInput:
        raise
    except SyntaxError as error:
        raise BadInput(
            Problem(f"{error.msg}", file=error.filename, line=error.lineno, column=error.offset)
        ) from None
    except (Exception, SystemExit) as error:  # somebody else's code runs here, and may raise anything
        raise _broken(name, error) from error


def _modules_here() -> str:
    files = sorted(path.stem for path in Path.cwd().glob("*.py") if path.stem.isidentifier())
    return ", ".join(files[:10])


def _broken(name: str, error: BaseException) -> BadInput:
    """The module's own fault, where it happened."""
    log.debug("importing %s failed", name, exc_info=error)
    last = traceback.extract_tb(error.__traceback__)[-1]
    message = f"importing {name} failed: {type(error).__name__}: {error}"
    return BadInput(
        Problem(message, file=last.filename, line=last.lineno, hint="reach -v agent … shows all of it")
    )


def _named(module: ModuleType, name: str) -> object:
    found: object = module
    for part in name.split("."):
        if not hasattr(found, part):
            known = [each for each in dir(found) if not each.startswith("_")]
            close = nearest(part, _agents_in(module) or known) or nearest(part, known)
            hint = (
                f"did you mean {close}?"
                if close
                else f"agents in it: {', '.join(_agents_in(module)) or 'none'}"
            )
            raise BadInput(Problem(f"the module {module.__name__} has no {part!r}", hint=hint))
        found = getattr(found, part)
    return found


def _only_one(module: ModuleType) -> object:
    names = _agents_in(module)
    if len(names) == 1:
        return getattr(module, names[0])
    found = ", ".join(f"{module.__name__}:{name}" for name in names)
    hint = f"one of {found}" if found else 'make one: my_agent = Agent("my-agent")'
    raise BadInput(Problem(f"the module {module.__name__} holds {len(names)} agents, name one", hint=hint))


def _agents_in(module: ModuleType) -> list[str]:
    return [name for name, value in vars(module).items() if _is_agent(value) and value is not Agent]


def _is_agent(value: object) -> bool:
    return isinstance(value, Agent) or (isinstance(value, type) and issubclass(value, Agent))


def _agent(found: object, place: str) -> Agent:
    if isinstance(found, type) and issubclass(found, Agent):
        return _made(found, place)
    if isinstance(found, Agent):
        return found
    hint = "it must be an Agent, or a subclass of Agent that needs no arguments"
    raise BadInput(Problem(f"{place} is no agent but {type(found).__name__!r}", hint=hint))


def _made(kind: type[Agent], place: str) -> Agent:
    try:
        return kind()
    except TypeError as error:
        raise BadInput(Problem(f"{place} cannot be made without arguments: {error}")) from error
