import ast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reach_worker.demo.work import shipped
from reach_worker.demo.work.code_metrics import complexities, complexity
from reach_worker.demo.work.code_review import metrics, review
from reach_worker.demo.work.code_rules import RULES


def found(source: str, **settings: object) -> list[tuple[int, int, str]]:
    findings = review({"source": source, **settings})["findings"]
    return [(finding["line"], finding["column"], finding["rule"]) for finding in findings]


def rules(source: str, **settings: object) -> list[str]:
    return [rule for _, _, rule in found(source, **settings)]


SAMPLES = {
    "async_poller.py.txt": [
        (10, 41, "mutable-default"),
        (17, 1, "async-without-await"),
        (22, 5, "shadowed-builtin"),
        (27, 22, "empty-f-string"),
        (29, 9, "swallowed-exception"),
        (29, 9, "unused-variable"),
        (40, 5, "async-without-await"),
    ],
    "broken_config.py.txt": [(7, 16, "syntax-error")],
    "inventory.py.txt": [(29, 49, "unused-variable"), (29, 59, "empty-f-string")],
    "order_import.py.txt": [
        (5, 8, "unused-import"),
        (9, 28, "mutable-default"),
        (9, 40, "mutable-default"),
        (16, 13, "bare-except"),
        (16, 13, "swallowed-exception"),
        (18, 16, "none-comparison"),
        (23, 5, "unused-variable"),
        (24, 11, "empty-f-string"),
        (32, 5, "swallowed-exception"),
        (37, 5, "shadowed-builtin"),
    ],
    "rule_engine.py.txt": [
        (4, 8, "unused-import"),
        (10, 43, "mutable-default"),
        (13, 5, "too-many-parameters"),
        (15, 16, "none-comparison"),
        (16, 26, "eval-exec"),
        (25, 9, "eval-exec"),
        (32, 1, "shadowed-builtin"),
        (37, 5, "unused-variable"),
    ],
}


def test_every_shipped_sample_is_expected() -> None:
    assert list(shipped.code_samples()) == list(SAMPLES)


@pytest.mark.parametrize("name", SAMPLES)
def test_the_samples_faults_are_found_where_they_are(name: str) -> None:
    answer = review({"sample": name})
    assert [(f["line"], f["column"], f["rule"]) for f in answer["findings"]] == SAMPLES[name]
    assert answer["file"] == name
    assert sum(answer["counts"].values()) == len(SAMPLES[name])


def test_columns_are_characters_and_not_bytes() -> None:
    line = shipped.code_samples()["inventory.py.txt"].split("\n")[28]
    assert line[48:].startswith("message = ")
    assert line[58:].startswith('f"')


def test_a_syntax_error_is_a_finding() -> None:
    answer = review({"source": "x = 1\ndef f(:\n"})
    (finding,) = answer["findings"]
    assert (finding["line"], finding["rule"], finding["severity"]) == (2, "syntax-error", "error")
    assert finding["message"]
    assert answer["counts"] == {"error": 1, "warning": 0, "info": 0}


@pytest.mark.parametrize("source", ["x = 1\x00", "x = '\ud800'"])
def test_source_that_cannot_be_encoded_is_a_finding_too(source: str) -> None:
    assert rules(source) == ["syntax-error"]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("try:\n    f()\nexcept:\n    raise", ["bare-except"]),
        ("try:\n    f()\nexcept ValueError:\n    '''never mind'''", ["swallowed-exception"]),
        ("try:\n    f()\nexcept ValueError:\n    g()", []),
        ("try:\n    f()\nexcept (A, b.C):\n    pass", ["swallowed-exception"]),
        ("try:\n    f()\nexcept " + "-" * 500 + "x:\n    pass", ["swallowed-exception"]),
        ("def f(a=[], *, b={}): ...", ["mutable-default", "mutable-default"]),
        ("f = lambda a=set(): a", ["mutable-default"]),
        ("def f(a=(), b=None, c=frozenset()): ...", []),
        ("import collections\ndef f(a=collections.deque()): ...", ["mutable-default"]),
        ("import os.path", ["unused-import"]),
        ("import os.path\nos.getcwd()", []),
        ("from a import b as c", ["unused-import"]),
        ("from a import b as b", []),
        ("from a import *\nfrom __future__ import annotations", []),
        ("from a import b\n__all__ = ['b']", []),
        ("from a import B\ndef f(x: 'list[B]') -> None: ...", []),
        ("def f():\n    import os", ["unused-import"]),
        ("def f():\n    x = 1", ["unused-variable"]),
        ("def f():\n    x = 1\n    x = 2", ["unused-variable"]),
        ("def f():\n    x = 1\n    def g():\n        return x\n    return g", []),
        ("def f():\n    global x\n    x = 1", []),
        ("def f():\n    _x = 1\n    for y in z: ...\n    a, b = z", []),
        ("def f():\n    x = 1\n    x += 1", []),
        ("def f():\n    x = 1\n    return locals()", []),
        ("def f():\n    with g() as x: ...", ["unused-variable"]),
        ("def f():\n    if (x := 1): ...", ["unused-variable"]),
        ("def f():\n    x: int\n    x.y = 1", []),
        ("x = 1", []),
        ("x == None", ["none-comparison"]),
        ("None != x", ["none-comparison"]),
        ("1 < x == None", ["none-comparison"]),
        ("x is None", []),
        ("f'plain'", ["empty-f-string"]),
        ("'a' f'b {x:>{width}} {y:>10}'", []),
        ("eval('1')\nmodel.eval()", ["eval-exec"]),
        ("def id(): ...", ["shadowed-builtin"]),
        ("class A:\n    id = 1\n    def list(self): ...", []),
        ("def f(type): ...", ["shadowed-builtin"]),
        ("[id for id in x]", ["shadowed-builtin"]),
        ("from a import open\nopen()", ["shadowed-builtin"]),
        ("lambda input: input", ["shadowed-builtin"]),
        ("def f(a, b, c, d, e, f): ...", ["too-many-parameters"]),
        ("class A:\n    def f(self, a, b, c, d, e): ...", []),
        ("class A:\n    @staticmethod\n    def f(a, b, c, d, e, f): ...", ["too-many-parameters"]),
        ("def f():\n" + "    g()\n" * 50, ["long-function"]),
        ("def f():\n" + "    g()\n" * 49, []),
        ("async def f():\n    g()", ["async-without-await"]),
        ("async def f():\n    await g()", []),
        ("async def f():\n    async with g(): ...", []),
        ("async def f():\n    return [x async for x in y]", []),
        ("async def f():\n    yield 1", []),
        ("async def f():\n    async def g():\n        await h()\n    return g", ["async-without-await"]),
        ("async def f():\n    '''Not yet.'''\n    raise NotImplementedError", []),
    ],
)
def test_rules(source: str, expected: list[str]) -> None:
    assert rules(source) == expected


def test_every_rule_is_met_somewhere_in_the_samples_or_here() -> None:
    seen = {rule for sample in SAMPLES.values() for _, _, rule in sample}
    assert {*RULES} - seen == {"long-function", "missing-return-annotation"}


def test_settings() -> None:
    source = "def f(a, b):\n    return a\n"
    assert rules(source) == []
    assert rules(source, annotations=True) == ["missing-return-annotation"]
    assert rules(source, max_parameters=1, max_function_lines=1) == ["long-function", "too-many-parameters"]
    assert rules(source, max_parameters=1, ignore=["too-many-parameters"]) == []


@pytest.mark.parametrize(
    ("payload", "field"),
    [
        ({}, "source"),
        ({"source": "  "}, "source"),
        ({"sample": "../../secret"}, "sample"),
        ({"source": "x", "ignore": ["moon"]}, "ignore"),
        ({"source": "x", "ignore": "moon"}, "ignore"),
        ({"source": "x", "annotations": "yes"}, "annotations"),
        ({"source": "x", "max_parameters": 0}, "max_parameters"),
        ({"source": "-" * 100_000 + "1"}, "source"),
    ],
)
def test_what_cannot_be_reviewed_names_its_field(payload: dict[str, object], field: str) -> None:
    with pytest.raises(ValueError, match=f"^{field}: "):
        review(payload)


def test_windows_line_ends_do_not_move_the_lines() -> None:
    assert found("import os\r\n\r\nx == None\r\n") == [(1, 8, "unused-import"), (3, 1, "none-comparison")]


def test_metrics_of_a_sample() -> None:
    answer = metrics({"sample": "rule_engine.py.txt"})
    assert answer["lines"] == {"total": 38, "code": 29, "comment": 0, "blank": 9}
    assert answer["classes"] == 1
    assert [(f["name"], f["line"], f["parameters"], f["complexity"]) for f in answer["functions"]] == [
        ("RuleEngine.__init__", 10, 1, 1),
        ("RuleEngine.price", 13, 7, 8),
        ("RuleEngine.run", 23, 1, 1),
        ("RuleEngine.type", 28, 0, 1),
        ("max", 32, 1, 3),
    ]
    assert answer["max_complexity"] == 8
    assert answer["mean_complexity"] == 2.8


@pytest.mark.parametrize("name", [name for name in SAMPLES if name != "broken_config.py.txt"])
def test_lines_of_the_samples_by_a_plain_count(name: str) -> None:
    lines = shipped.code_samples()[name].splitlines()
    counts = metrics({"sample": name})["lines"]
    assert counts["total"] == len(lines)
    assert counts["blank"] == sum(1 for line in lines if not line.strip())


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("return 1", 1),
        ("return a if b else c", 2),
        ("if a: pass\nelif b: pass\nelse: pass", 3),
        ("return a and b or c", 3),
        ("return a and b and c", 3),
        ("for x in y: pass\nelse: pass", 2),
        ("while a: pass", 2),
        ("try: pass\nexcept A: pass\nexcept B: pass\nfinally: pass", 3),
        ("return [x for x in y if x if not z]", 4),
        ("match a:\n  case 1: pass\n  case 2: pass\n  case _: pass", 3),
        ("match a:\n  case b if b > 1: pass\n  case b: pass", 2),
        ("def g():\n  if a: pass", 1),
        ("return lambda: 1 if a else 2", 1),
    ],
)
def test_cyclomatic_complexity(body: str, expected: int) -> None:
    source = "def f():\n" + "\n".join("  " + line for line in body.split("\n"))
    function = ast.parse(source).body[0]
    assert isinstance(function, ast.FunctionDef)
    assert complexity(function) == expected


def test_nested_functions_have_dotted_names() -> None:
    source = "class A:\n  def f(self):\n    if a:\n      def g(x): pass\n"
    assert [(f.name, f.parameters) for f in complexities(ast.parse(source))] == [("A.f", 0), ("A.f.g", 1)]


def test_lines_by_kind() -> None:
    source = '# a remark\n\nx = """\n\n# no remark\n"""  # one more\n\n'
    assert metrics({"source": source})["lines"] == {"total": 7, "code": 4, "comment": 1, "blank": 2}


def test_metrics_without_functions() -> None:
    answer = metrics({"source": "x = 1"})
    assert (answer["functions"], answer["max_complexity"], answer["mean_complexity"]) == ([], None, None)


def test_metrics_of_broken_source_say_where_it_breaks() -> None:
    with pytest.raises(ValueError, match=r"source: line 7, column 16: '\{' was never closed"):
        metrics({"sample": "broken_config.py.txt"})


WORDS = "def class async await lambda for if else try except: import as f'x' ( ) [ ] : = , x 1 None é"
token = st.sampled_from([*WORDS.split(), "\n", "\n ", "\t"])


@given(st.text(min_size=1) | st.lists(token, min_size=1).map(" ".join))
@pytest.mark.filterwarnings("ignore::SyntaxWarning", "ignore::DeprecationWarning")
def test_any_text_is_reviewed_or_refused_in_words(source: str) -> None:
    try:
        answer = review({"source": source, "annotations": True})
    except ValueError as error:
        assert str(error).startswith("source: ")  # noqa: PT017 - both ends are fine, this is the second
    else:
        lines = source.replace("\r\n", "\n").replace("\r", "\n").split("\n")
        assert all(1 <= finding["line"] <= len(lines) + 1 for finding in answer["findings"])
