"""What is expected of llama.cpp's tests when they run against Terrace.

A plug-in of pytest. Tests in not-applicable.toml have to fail for the reason of their group, or are not run if that
would only wait; one that passes is an error, so that the list stays true. All others have to pass.
"""

import os
import sys
import tomllib
from collections import Counter
from pathlib import Path

import pytest
from requests.structures import CaseInsensitiveDict

HERE = Path(__file__).parent
GROUPS = tomllib.loads((HERE / "not-applicable.toml").read_text()).get("group", [])
# Parts of the names of tests that give a model tools. llama.cpp writes them into any prompt, Terrace only where the
# model's template has a place for them, which that of the bundled model has not.
WITH_TOOLS = ("test_anthropic_tool_use", "test_anthropic_tool_streaming", "content_block_indices")
TOOLS = HERE.parent / "it" / "tools.jinja"


def names(group, test):
    """Whether a group names a test. A name with a star at its end stands for all that begin with it."""
    for name in group["tests"]:
        if test == name or name.endswith("*") and test.startswith(name[:-1]):
            group.setdefault("used", set()).add(name)
            return True
    return False


def pytest_addoption(parser):
    parser.addoption("--whole-list", action="store_true", help="all tests of the list have to be there")
    parser.addoption("--page", help="write the page of the book to this file")


def pytest_configure(config):
    sys.path.insert(0, os.getcwd())
    import utils

    # Models are not downloaded, and texts are those of other models.
    utils.ServerPreset.load_all = staticmethod(lambda: None)
    Path(utils.TMP_DIR).mkdir(exist_ok=True)
    utils.match_regex = lambda regex, text: isinstance(text, str)
    make_request = utils.ServerProcess.make_request

    def asked(*args, **kwargs):
        response = make_request(*args, **kwargs)
        # As HTTP has them; the tests look for llama-server's spelling.
        response.headers = CaseInsensitiveDict(response.headers)
        return response

    utils.ServerProcess.make_request = asked


def pytest_runtest_setup(item):
    os.environ["TEMPLATE"] = str(TOOLS) if any(name in item.name for name in WITH_TOOLS) else ""


def pytest_collection_modifyitems(config, items):
    for item in items:
        group = next((group for group in GROUPS if names(group, item.nodeid)), None)
        if group:
            mark = pytest.mark.xfail(reason=group["name"], run=group.get("run", True), strict=True)
            item.add_marker(mark)
    if config.getoption("whole_list"):
        unused = [name for group in GROUPS for name in group["tests"] if name not in group.get("used", ())]
        if unused:
            raise pytest.UsageError(f"not-applicable.toml names tests that do not exist: {', '.join(unused)}")


class Counts:
    """What came of the tests."""

    def __init__(self, stats):
        self.passed = Counter(file_of(report) for report in stats.get("passed", []))
        left_out = stats.get("xfailed", [])
        self.groups = Counter(report.wasxfail.removeprefix("[NOTRUN] ") for report in left_out)
        self.left_out = Counter(file_of(report) for report in left_out)
        skipped = stats.get("skipped", [])
        self.skipped = Counter(report.longrepr[2].removeprefix("Skipped: ") for report in skipped)
        self.left_out.update(file_of(report) for report in skipped)
        self.failed = len(stats.get("failed", [])) + len(stats.get("error", []))


def file_of(report):
    return report.nodeid.split("::")[0].removeprefix("unit/")


def pytest_terminal_summary(terminalreporter, exitstatus, config):
    counts = Counts(terminalreporter.stats)
    write = terminalreporter.write_line
    write("")
    for group in GROUPS:
        if counts.groups[group["name"]]:
            write(f"{counts.groups[group['name']]:5}  {group['name']}: {group['reason']}")
    for reason, number in counts.skipped.items():
        write(f"{number:5}  skipped by the suite: {reason}")
    write(f"{counts.passed.total()} passed, {counts.left_out.total()} not applicable, {counts.failed} failed")
    if config.getoption("page"):
        Path(config.getoption("page")).write_text(page(counts))


def page(counts):
    lines = [
        "# llama.cpp's tests of its server",
        "",
        "`scripts/upstream-server-suite` runs the tests that llama.cpp has for llama-server against `terrace serve`, with",
        "the bundled model in place of those that the tests download. What they expect of the texts, and of the numbers",
        "of tokens, of those models is taken out, line by line; what else they check stays. Every test that does not",
        "apply is named with its reason in `crates/terrace/tests/upstream/not-applicable.toml`, and has to fail unless",
        "it is marked there as one that is not even tried: the script ends with an error if one of them passes, or if",
        "any other fails. Tests with large models (`slow`) are left out, as in the suite's own `tests.sh`.",
        "",
        f"**{counts.passed.total()} passed, {counts.left_out.total()} not applicable, {counts.failed} failed.**",
        "",
        "| file | passed | not applicable |",
        "|---|---|---|",
    ]
    for file in sorted(counts.passed | counts.left_out):
        lines.append(f"| `{file}` | {counts.passed[file]} | {counts.left_out[file]} |")
    lines += ["", "## Not applicable", "", "| tests | what | why |", "|---|---|---|"]
    for group in GROUPS:
        if counts.groups[group["name"]]:
            lines.append(f"| {counts.groups[group['name']]} | {group['name']} | {group['reason']} |")
    for reason, number in counts.skipped.items():
        lines.append(f"| {number} | skipped by the suite | {reason} |")
    return "\n".join(lines) + "\n"
