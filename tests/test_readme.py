"""The Python in README.md runs as it stands there, from the top of a checkout."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SNIPPETS = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), flags=re.DOTALL)
PARTS = [part for snippet in SNIPPETS for part in re.split(r"\n\n(?=from )", snippet)]


@pytest.mark.parametrize("code", PARTS)
def test_python_of_the_readme_runs(
    code: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ROOT)
    exec(code, {})
    assert capsys.readouterr().out.strip()


def test_the_readme_has_python_to_run() -> None:
    assert len(PARTS) == 2
