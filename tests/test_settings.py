"""Settings and the fleet's files: defaults, overrides, and every problem with its place."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from reach_worker.core.tags import TagTable
from reach_worker.core.yaml_text import parse
from reach_worker.errors import BadInput, Problem
from reach_worker.settings import (
    Settings,
    load_fleet,
    load_manifests,
    load_settings,
    redacted,
    render_reference,
)

ROOT = Path(__file__).parents[1]
MANIFEST = "id: {id}\nmutually_exclusive_tags: []\ncapabilities: [{{id: {capability}}}]\n"


@pytest.fixture
def config(tmp_path: Path) -> Path:
    folder = tmp_path / "config"
    (folder / "agents").mkdir(parents=True)
    return folder


def write(path: Path, text: str) -> Path:
    path.write_text(text, "utf-8")
    return path


def refused(path: Path | None, environ: dict[str, str] | None = None) -> tuple[Problem, ...]:
    with pytest.raises(BadInput) as caught:
        load_settings(path, environ or {})
    return caught.value.problems


# ------------------------------------------------------------------ the model


def test_no_file_is_the_defaults() -> None:
    settings = load_settings(None, {})

    assert settings.broker.url == ("amqp://guest:guest@127.0.0.1:5672/",)
    assert (settings.broker.prefix, settings.broker.heartbeat_s) == ("reach.v1", 10)
    assert (settings.router.id, settings.router.grace_s) == ("router-1", 20.0)
    assert (settings.store.retention_days, settings.store.wait_s, settings.store.batch) == (90, 1.0, 500)
    assert settings.paths.agents == Path("config/agents")
    assert settings.paths.tags == Path("config/tags.yaml")
    assert settings.store.path == Path("data/reach.db")
    assert settings.retry == Settings().retry


def test_every_field_of_every_section_says_what_it_means() -> None:
    for section in Settings.model_fields.values():
        assert isinstance(section.annotation, type)
        for name, info in section.annotation.model_fields.items():
            assert info.description, name


def test_a_file_goes_over_the_defaults(config: Path) -> None:
    path = write(
        config / "reach.yaml", "retry:\n  max_retries: 5\nbroker: {url: [amqp://a/, amqps://b:5671/v]}\n"
    )

    settings = load_settings(path, {})

    assert settings.retry.max_retries == 5
    assert settings.retry.base_s == Settings().retry.base_s
    assert settings.broker.url == ("amqp://a/", "amqps://b:5671/v")


@pytest.mark.parametrize("text", ["", "# nothing yet\n", "retry:\nbroker:\n"])
def test_an_empty_file_and_empty_sections_are_the_defaults(config: Path, text: str) -> None:
    assert load_settings(write(config / "reach.yaml", text), {}).retry == Settings().retry


@pytest.mark.parametrize(
    ("text", "line", "column", "field", "message", "hint"),
    [
        (
            "retry:\n  max_retrys: 1\n",
            2,
            3,
            "/retry/max_retrys",
            "unknown field",
            "did you mean max_retries?",
        ),
        ("retries: {}\n", 1, 1, "/retries", "unknown field", "did you mean retry?"),
        ("retry: {max_retries: '3'}\n", 1, 9, "/retry/max_retries", "must be a whole number, not text", ""),
        ("retry: 3\n", 1, 1, "/retry", "must be a mapping (`name: value`), not 3", ""),
        ("- 1\n", 1, 1, "", "must be a mapping (`name: value`), not a list", ""),
        ("broker: {prefix: 'a b'}\n", 1, 10, "/broker/prefix", "must match", ""),
        ("broker: {prefix: 7}\n", 1, 10, "/broker/prefix", "must be text, and 7 without quotes", 'write "7"'),
        ("broker: {url: []}\n", 1, 10, "/broker/url", "must not be empty", ""),
        ("broker: {url: 5}\n", 1, 10, "/broker/url", "must be a list, not 5", ""),
        ("router: {id: 'a b'}\n", 1, 10, "/router/id", "an id holds letters, digits and . _ - only", ""),
        ("router: {grace_s: -1}\n", 1, 10, "/router/grace_s", "must be at least 0, not -1", ""),
        (
            "store: {path: 3}\n",
            1,
            9,
            "/store/path",
            "must be text, and 3 without quotes is a number",
            'write "3"',
        ),
        ("store: {batch: 0}\n", 1, 9, "/store/batch", "must be at least 1, not 0", ""),
        ("routing: {weights: {cost: 0.5}}\n", 1, 1, "/routing", "weights add up to 1, these to 0.5", ""),
        ("a: [\n", 2, 1, "", "not YAML: expected the node content", "while parsing a flow node"),
    ],
)
def test_a_wrong_setting_is_refused_at_its_place(
    config: Path, text: str, line: int, column: int, field: str, message: str, hint: str
) -> None:
    path = write(config / "reach.yaml", text)

    (problem,) = refused(path)

    assert (problem.file, problem.line, problem.column) == (str(path), line, column)
    assert problem.field == field
    assert problem.message.startswith(message)
    assert (problem.hint or "") == hint


def test_all_wrong_settings_are_told_at_once(config: Path) -> None:
    path = write(config / "reach.yaml", "retry: {max_retries: x}\nstore: {batch: 0}\n")

    found = refused(path, {"REACH_ROUTER__ID": "a b"})

    assert {problem.field for problem in found} == {"/retry/max_retries", "/store/batch", "/router/id"}


@pytest.mark.parametrize(
    "url",
    [
        "http://h/",
        "guest:hunter2@h",
        "amqp://",
        "amqp://u:hunter2@h:x/",
        "amqp://u:hunter2@h:0/",
        "amqp://u:hunter2@h:99999/",
        "amqp://u:hun#ter2@h/",
        "amqp://u:hunter2@h/ x",
        "amqp://[u:hunter2@h/",
    ],
)
def test_what_is_no_url_is_refused_and_not_repeated(config: Path, url: str) -> None:
    (problem,) = refused(write(config / "reach.yaml", f"broker:\n  url: '{url}'\n"))

    assert problem.message.startswith("must look like amqp://user:password@host:5672/vhost")
    assert (problem.line, problem.field) == (2, "/broker/url")
    assert "hunter2" not in problem.render()
    assert "ter2" not in problem.render()


def test_a_wrong_url_of_a_list_is_pointed_at(config: Path) -> None:
    (problem,) = refused(write(config / "reach.yaml", "broker:\n  url:\n  - amqp://a/\n  - b\n"))

    assert (problem.line, problem.column, problem.field) == (4, 5, "/broker/url/1")


# ------------------------------------------------------------- the environment


@pytest.mark.parametrize(
    ("name", "value", "section", "field", "expected"),
    [
        ("REACH_RETRY__MAX_RETRIES", "7", "retry", "max_retries", 7),
        ("REACH_INTAKE__RATE", "2.5", "intake", "rate", 2.5),
        ("REACH_INTAKE__RATE", "null", "intake", "rate", None),
        ("REACH_BROKER__PREFIX", "123", "broker", "prefix", "123"),
        ("REACH_ROUTER__ID", "7", "router", "id", "7"),
        ("REACH_ROUTING__TIE_BREAK", "spread", "routing", "tie_break", "spread"),
        ("REACH_ROUTING__WEIGHTS", "{cost: 1}", "routing", "weights", {"cost": 1.0}),
        ("REACH_ROUTING__WEIGHTS__COST", "1", "routing", "weights", {"cost": 1.0}),
        ("REACH_STORE__PATH", "/var/lib/reach.db", "store", "path", Path("/var/lib/reach.db")),
        ("REACH_AMQP_URL", "amqp://h/", "broker", "url", ("amqp://h/",)),
        ("REACH_AMQP_URL", "amqp://h/, amqp://i/", "broker", "url", ("amqp://h/", "amqp://i/")),
        ("REACH_BROKER__URL", "amqp://u:p%23@h/", "broker", "url", ("amqp://u:p%23@h/",)),
    ],
)
def test_a_variable_goes_over_the_file(
    config: Path, name: str, value: str, section: str, field: str, expected: object
) -> None:
    path = write(
        config / "reach.yaml", "intake: {rate: 9}\nretry: {max_retries: 1}\nbroker: {url: amqp://file/}\n"
    )

    settings = load_settings(path, {name: value})

    assert getattr(getattr(settings, section), field) == expected


def test_other_variables_and_empty_ones_are_let_be() -> None:
    environ = {
        "REACH_CONFIG": "x",
        "REACH_AMQP_URL": "",
        "REACH_RETRY__MAX_RETRIES": " ",
        "PATH": "/bin",
        "REACH": "y",
    }

    assert load_settings(None, environ) == load_settings(None, {})


@pytest.mark.parametrize(
    ("name", "value", "rendered"),
    [
        ("REACH_BROKER__ULR", "x", "REACH_BROKER__ULR: /broker/ulr: unknown field (did you mean url?)"),
        (
            "REACH_RETRY__MAX_RETRIES",
            "x",
            "REACH_RETRY__MAX_RETRIES: /retry/max_retries: must be a whole number, not text",
        ),
        ("REACH_RETRY__MAX_RETRIES", "[", "REACH_RETRY__MAX_RETRIES:1:2: not YAML: "),
        ("REACH_AMQP_URL", "u:hunter2@h", "REACH_AMQP_URL: /broker/url: must look like amqp://"),
        ("REACH_RETRY", "x", ""),
        ("REACH_RETRY__", "x", "REACH_RETRY__: /retry/: unknown field"),
        ("REACH_RETRY__MAX_RETRIES__DEEP", "1", "REACH_RETRY__MAX_RETRIES__DEEP: /retry/max_retries"),
    ],
)
def test_a_wrong_variable_is_named(name: str, value: str, rendered: str) -> None:
    if not rendered:
        load_settings(None, {name: value})
        return
    (problem,) = refused(None, {name: value})

    assert problem.render().startswith(rendered)
    assert "hunter2" not in problem.render()


def test_a_variable_over_a_section_that_is_none_leaves_the_files_fault(config: Path) -> None:
    path = write(config / "reach.yaml", "retry: [1]\n")

    (problem,) = refused(path, {"REACH_RETRY__MAX_RETRIES": "3"})

    assert problem.message == "must be a mapping (`name: value`), not a list"


def test_a_variables_value_is_not_blamed_on_the_file(config: Path) -> None:
    path = write(config / "reach.yaml", "routing:\n  weights: {cost: 0.5, load: 0.5}\n")

    (problem,) = refused(path, {"REACH_ROUTING__WEIGHTS": "{cost: x}"})

    assert (problem.file, problem.line, problem.field) == (
        "REACH_ROUTING__WEIGHTS",
        None,
        "/routing/weights/cost",
    )


def test_two_addresses_that_differ_are_refused() -> None:
    both = {"REACH_AMQP_URL": "amqp://a/", "REACH_BROKER__URL": "amqp://b/"}

    (problem,) = refused(None, both)

    assert problem.render() == "REACH_AMQP_URL: and REACH_BROKER__URL differ (set one of them)"
    assert load_settings(None, dict.fromkeys(both, "amqp://a/")).broker.url == ("amqp://a/",)


# ---------------------------------------------------------------- files, paths


def test_a_named_file_that_is_missing_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "none.yaml"

    assert refused(path) == (Problem("there is no such file", file=str(path)),)


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    (problem,) = refused(tmp_path)

    assert problem.file == str(tmp_path)
    assert problem.message.startswith("cannot be read: ")


def test_a_file_that_is_no_text_is_an_error(config: Path) -> None:
    path = config / "reach.yaml"
    path.write_bytes(b"retry:\n  max_retries: \xff\n")

    assert refused(path) == (Problem("is not UTF-8 text", file=str(path), line=2),)


def test_paths_are_relative_to_the_file_and_the_store_to_the_project(config: Path) -> None:
    settings = load_settings(write(config / "reach.yaml", "paths: {agents: fleet}\n"), {})

    assert settings.paths.agents == config / "fleet"
    assert settings.paths.tags == config / "tags.yaml"
    assert settings.store.path == config.parent / "data" / "reach.db"


def test_a_file_elsewhere_keeps_its_store_beside_it(tmp_path: Path) -> None:
    settings = load_settings(write(tmp_path / "mine.yaml", ""), {})

    assert settings.store.path == tmp_path / "data" / "reach.db"


def test_inside_the_config_folder_the_project_is_above(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(config / "reach.yaml", "")
    monkeypatch.chdir(config)

    settings = load_settings(Path("reach.yaml"), {})

    assert settings.store.path.resolve() == config.parent.resolve() / "data" / "reach.db"
    assert settings.paths.agents == Path("agents")


def test_absolute_paths_and_home_are_kept(
    config: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    path = write(config / "reach.yaml", f"paths: {{agents: {tmp_path}/x}}\nstore: {{path: ~/reach.db}}\n")

    settings = load_settings(path, {})

    assert settings.paths.agents == tmp_path / "x"
    assert settings.store.path == tmp_path / "reach.db"


# ------------------------------------------------------------------- secrets


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("amqp://u:secret@h:5672/v", "amqp://u:***@h:5672/v"),
        ("amqp://u:se@cr@et@h/", "amqp://u:***@h/"),
        ("amqp://:secret@h/", "amqp://:***@h/"),
        ("amqps://u@h/", "amqps://u@h/"),
        ("amqp://h/", "amqp://h/"),
    ],
)
def test_passwords_are_hidden(url: str, shown: str) -> None:
    assert redacted(url) == shown


@given(st.text("abc:/?#%é ", min_size=1), st.sampled_from(["amqp://user:{}@host/v", "amqps://:{}@host"]))
def test_no_password_is_ever_shown(password: str, url: str) -> None:
    secret = f"SEC{password}RET"

    assert "SEC" not in redacted(url.format(secret))
    assert "RET" not in redacted(url.format(secret))


def test_settings_can_be_shown() -> None:
    settings = load_settings(None, {"REACH_AMQP_URL": "amqp://u:hunter2@h/"})

    assert settings.redacted()["broker"]["url"] == ["amqp://u:***@h/"]
    assert settings.broker.redacted() == ("amqp://u:***@h/",)
    assert "hunter2" not in f"{settings!r} {settings} {settings.redacted()}"


# ------------------------------------------------------------------ the reference


def test_the_shipped_file_is_the_reference() -> None:
    assert (ROOT / "config" / "reach.yaml").read_text("utf-8") == render_reference(), (
        "write it again: python -m reach_worker.settings reference > config/reach.yaml"
    )


def test_the_reference_as_it_is_changes_nothing() -> None:
    assert load_settings(ROOT / "config" / "reach.yaml", {}).model_dump(exclude={"paths", "store"}) == (
        Settings().model_dump(exclude={"paths", "store"})
    )


def test_the_reference_with_every_line_switched_on_is_the_defaults(config: Path) -> None:
    text = re.sub(r"^( +)#(\w)", r"\1\2", render_reference(), flags=re.MULTILINE)
    data = yaml.safe_load(text)

    assert {section: set(fields) for section, fields in data.items()} == {
        name: set(type(section).model_fields) for name, section in Settings()
    }
    settings = load_settings(write(config / "reach.yaml", text), {})
    assert settings == load_settings(write(config / "reach.yaml", ""), {})


def test_the_reference_writes_models_in_models() -> None:
    class Outer(Settings):
        inner: Settings = Settings()

    text = render_reference(Outer)

    assert "  #retry:\n    # retries after the first attempt\n    #max_retries: 3\n" in text


@pytest.mark.parametrize(("arguments", "status"), [(["reference"], 0), (["schema"], 0), ([], 2), (["x"], 2)])
def test_the_generated_files_can_be_printed(arguments: list[str], status: int) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "reach_worker.settings", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == status
    assert bool(done.stdout) == (status == 0)
    if arguments == ["reference"]:
        assert done.stdout == render_reference()


# ----------------------------------------------------------------- the fleet


def fleet_refused(config: Path) -> tuple[Problem, ...]:
    with pytest.raises(BadInput) as caught:
        load_fleet(load_settings(write(config / "reach.yaml", ""), {}))
    return caught.value.problems


def manifest(config: Path, file: str, text: str = MANIFEST, **names: str) -> Path:
    return write(config / "agents" / file, text.format(**{"id": "a", "capability": "c", **names}))


def test_the_fleet_is_the_manifests_by_id_with_one_spelling_per_tag(config: Path) -> None:
    write(config / "tags.yaml", "report: [报表]\n")
    manifest(config, "b.yaml", "id: b\nmutually_exclusive_tags: [报表]\ncapabilities: [{{id: c}}]\n")
    manifest(config, "a.yml")
    write(config / "agents" / "notes.txt", "not a manifest")
    write(config / "agents" / ".hidden.yaml", "not: a manifest")
    (config / "agents" / "old").mkdir()

    fleet = load_fleet(load_settings(write(config / "reach.yaml", ""), {}))

    assert [each.id for each in fleet.manifests] == ["a", "b"]
    assert fleet.manifests[1].mutually_exclusive_tags == ("report",)
    assert fleet.tags.normalise("报表") == "report"
    assert fleet.warnings == ()


def test_two_manifests_of_one_id_are_refused_with_both_files(config: Path) -> None:
    first = manifest(config, "a.yaml")
    second = manifest(config, "b.yaml", id="A")

    (problem,) = fleet_refused(config)

    assert (problem.file, problem.line, problem.column, problem.field) == (str(second), 1, 1, "/id")
    assert problem.message == f"two manifests have the id 'a', the other is {first}"
    assert problem.hint == "give one another id"


def test_the_problems_of_all_files_come_at_once(config: Path) -> None:
    write(config / "tags.yaml", "a: [x]\nb: [x]\n")
    manifest(config, "a.yaml", "id: a\n")
    manifest(config, "b.yaml", "id: [\n")
    (config / "agents" / "c.yaml").mkdir()

    found = fleet_refused(config)

    assert [(Path(problem.file or "").name, problem.line) for problem in found] == [
        ("tags.yaml", 2),
        ("a.yaml", 1),
        ("a.yaml", 1),
        ("b.yaml", 2),
        ("c.yaml", None),
    ]
    with pytest.raises(BadInput) as caught:
        load_manifests(config / "agents", TagTable({}))
    assert len(caught.value.problems) == 4


def test_a_missing_folder_is_an_empty_fleet_and_a_warning(tmp_path: Path) -> None:
    fleet = load_fleet(load_settings(write(tmp_path / "reach.yaml", ""), {}))

    assert fleet.manifests == ()
    assert [(problem.file, problem.message) for problem in fleet.warnings] == [
        (str(tmp_path / "tags.yaml"), "there is no such file, so no tag has synonyms"),
        (
            str(tmp_path / "agents"),
            "there is no such folder, so agents are known only by the manifests that they bring",
        ),
    ]
    assert load_manifests(tmp_path / "none", TagTable({})) == []


def test_a_folder_that_is_none_is_a_problem(tmp_path: Path) -> None:
    write(tmp_path / "agents", "not a folder")

    assert fleet_refused(tmp_path) == (
        Problem("cannot be read: Not a directory", file=str(tmp_path / "agents")),
    )


def test_a_file_of_another_name_than_its_agent_is_a_warning(config: Path) -> None:
    write(config / "tags.yaml", "")
    path = manifest(config, "first.yaml")
    manifest(config, "B.yaml", id="b")

    fleet = load_fleet(load_settings(write(config / "reach.yaml", ""), {}))

    (problem,) = fleet.warnings
    assert problem == Problem(
        "the file of agent 'a' has another name", "/id", str(path), 1, 1, "call it a.yaml"
    )


def test_doubts_about_manifests_have_their_place(config: Path) -> None:
    write(config / "tags.yaml", "")
    path = manifest(config, "a.yaml", capability="c, cost: 9")

    fleet = load_fleet(load_settings(write(config / "reach.yaml", ""), {}))

    assert [(problem.file, problem.line, problem.field) for problem in fleet.warnings] == [
        (str(path), 3, "/capabilities/0/cost"),
        (str(path), 3, "/capabilities/0/id"),
    ]


def test_the_shipped_configuration_loads() -> None:
    fleet = load_fleet(load_settings(ROOT / "config" / "reach.yaml", {}))

    assert [each.id for each in fleet.manifests] == ["echo"]
    assert fleet.tags.normalise("日志") == "log"
    assert all("only agent" in problem.message for problem in fleet.warnings)


def test_the_shipped_file_names_its_schema() -> None:
    example = ROOT / "config" / "agents" / "echo.yaml"
    found = re.search(r"\$schema=(\S+)", example.read_text("utf-8"))

    assert found is not None
    assert (example.parent / found[1]).is_file()
    assert parse(example.read_text("utf-8")).data is not None
