"""`kernels/` is ours under the name minillm.kernels only: `import kernels` must never find it, whatever started Python where."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

ROOT = Path(__file__).resolve().parents[2]
SERIES = ROOT / "series" if (ROOT / "series").is_dir() else ROOT / "tests"
GUARD = ROOT / "tools" / "kernels_guard.py"

GENERATE = """
import importlib.util, torch
from transformers import LlamaConfig, LlamaForCausalLM
assert importlib.util.find_spec("kernels") is None, "run `make setup`: it installs tools/kernels_guard.py into .venv"
torch.manual_seed(0)
torch.set_num_threads(1)
model = LlamaForCausalLM(LlamaConfig(vocab_size=64, hidden_size=16, intermediate_size=32, num_hidden_layers=2,
                                     num_attention_heads=2, num_key_value_heads=1))
answer = model.generate(torch.tensor([[1, 2, 3]]), max_new_tokens=4, do_sample=False, eos_token_id=None, pad_token_id=0)
import minillm.kernels
print("generated", tuple(answer.shape))
"""


def python(code: str, cwd: Path, **env: str) -> str:
    """What a fresh interpreter printed. It starts in `cwd`, and `python -c` puts that folder on sys.path."""
    env = {**{k: v for k, v in os.environ.items() if k != "PYTHONPATH"}, **env}
    done = subprocess.run([sys.executable, "-c", code], cwd=cwd, env=env, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_transformers_generates_from_the_root():
    assert "generated (1, 7)" in python(GENERATE, ROOT)


def test_transformers_generates_in_a_notebook_beside_the_root():
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(GENERATE)])
    NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(SERIES)}}).execute()
    assert "generated (1, 7)" in notebook.cells[0].outputs[-1].text


def test_transformers_generates_under_pytest(capsys):
    exec(GENERATE, {"__name__": "generate"})
    assert "generated (1, 7)" in capsys.readouterr().out


def test_only_minillm_kernels_has_the_name():
    kernels = importlib.util.find_spec("minillm.kernels")
    assert Path(kernels.origin) == ROOT / "kernels" / "__init__.py"
    assert importlib.util.find_spec("kernels") is None


@pytest.fixture
def checkout(tmp_path):
    """A folder shaped like the repository, somewhere else: the guard knows a root by what lies in it."""
    for package in ("kernels", "minillm", "other"):
        (tmp_path / "moved" / package).mkdir(parents=True)
        (tmp_path / "moved" / package / "__init__.py").write_text("")
    return tmp_path / "moved"


FIND = "import importlib.util as u; print([bool(u.find_spec(name)) for name in ('kernels', 'minillm', 'other')])"


def test_hides_one_name_in_any_root_and_nothing_elsewhere(checkout):
    activate = f"import sys; sys.path.insert(1, {str(GUARD.parent)!r}); import kernels_guard; kernels_guard.activate(); "
    assert python(activate + FIND, checkout) == "[False, True, True]\n"
    assert python(activate + FIND, checkout.parent, PYTHONPATH=str(checkout)) == "[False, True, True]\n"
    (checkout / "minillm" / "__init__.py").unlink()
    assert python(activate + FIND, checkout).startswith("[True,")


def test_hugging_faces_package_stays_importable(checkout, tmp_path):
    (tmp_path / "installed").mkdir()
    (tmp_path / "installed" / "kernels.py").write_text("theirs = True")
    code = f"import sys; sys.path[1:1] = [{str(tmp_path / 'installed')!r}, {str(GUARD.parent)!r}]; "
    code += "import kernels_guard; kernels_guard.activate(); import kernels; print(kernels.theirs)"
    assert python(code, checkout) == "True\n"


def test_without_the_guard_the_trap_is_there(checkout):
    done = subprocess.run([sys.executable, "-S", "-c", FIND], cwd=checkout, capture_output=True, text=True, check=True)
    assert done.stdout == "[True, True, True]\n"
