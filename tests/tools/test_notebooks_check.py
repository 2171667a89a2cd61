"""A complete notebook passes; each fault planted in it is found, and named."""

import pytest


def cell_with(notebook, text):
    return next(cell for cell in notebook["cells"] if text in "".join(cell["source"]))


def outputs_of(notebook, text):
    return cell_with(notebook, text)["outputs"]


def test_a_complete_notebook_passes(sample):
    assert sample.faults() == []


TEXT_FAULTS = {
    "title": ("# KV cache", "# The cache", "begin with its title"),
    "question": ("> How long", "> For how long", "does not ask its question"),
    "card": ("`labs check 2.3` |", "`labs check 2.4` |", "card: check is '`labs check 2.4`'"),
    "no card": ("| layer |", "| tier |", "has no card"),
    "missing section": ("## What it costs", "### What it costs", "lacks the section `## What it costs`"),
    "unknown section": ("## Exercise", "## Exercises", "no section: Exercises"),
    "order": ("## In real engines", "## Exercise\\n\\n## In real engines", "in another order, or twice"),
    "exercise": ("labs/c2/m03_kv_cache.py", "labs/c2/m04_kv_cache.py", "which file to write in"),
    "command": ("```sh\\n", "labs check\\n", "has no command"),
    "sources": ("### Sources", "### Reading", "no list under `### Sources`"),
    "answers": ("<details>", "<detail>", "2 folded answers"),
    "bare number": ("A *cache* keeps", "In 20 ms a *cache* keeps", "'20 ms' carries no label"),
    "arithmetic": ("<!-- arithmetic -->", "And so", "'2 GB' carries no label"),
    "stale evidence": (
        "[16.06 GB](evidence:weights)",
        "[16.07 GB](evidence:weights)",
        "'16.07 GB' where evidence:weights is '16.06 GB'",
    ),
    "unknown evidence": ("(evidence:nap)", "(evidence:sleep)", "evidence:sleep names nothing"),
    "bad format": ("(evidence:weights:.0f)", "(evidence:weights:.0y)", "evidence:weights:.0y: "),
    "unreadable evidence": ("(evidence:nap)", "(evidence:Nap!)", "evidence:Nap! is no evidence link"),
    "no citation": ("(cite:vllm/vllm/v1/core/sched/scheduler.py#Scheduler.schedule)", "(#sources)", "cites no code"),
    "wrong citation": ("#Scheduler.schedule)", "#Scheduler.scheduled)", "defines no 'Scheduler.scheduled'"),
    "bare citation": ("A *cache* keeps", "`vllm/v1/core/sched/scheduler.py` keeps", "scheduler.py unchecked"),
    "broken link": ("../../LICENSE", "../../LICENCE", "../../LICENCE leads nowhere"),
    "outside": ("../../LICENSE", "../../..", "../../.. leads nowhere"),
    "anchor": ("(#sources)", "(#Sources)", "#Sources names no heading"),
    "absolute link": ("../../LICENSE", "file:///LICENSE", "one machine only"),
    "image without alt": ("[the licence](../../LICENSE)", "![](../../LICENSE)", "has no alt text"),
    "folder of a machine": ("A *cache* keeps", "/home" + "/me/x: a *cache* keeps", "a folder of one machine"),
}


@pytest.mark.parametrize(("old", "new", "message"), TEXT_FAULTS.values(), ids=TEXT_FAULTS)
def test_a_fault_in_the_text_is_found(sample, old, new, message):
    if message == "has no command":
        sample.change(lambda notebook: cell_with(notebook, "## Exercise")["source"].remove("labs check 2.3\n"))
        message = "does not give the command"
    else:
        sample.replace(old, new)
    assert any(message in fault for fault in sample.faults()), sample.faults()


def remove_alt(notebook):
    del cell_with(notebook, "SVG")["metadata"]["alt"]


def remove_number(notebook):
    outputs = outputs_of(notebook, "SVG")
    outputs[:] = [output for output in outputs if output["output_type"] != "stream"]


def remove_figure(notebook):
    outputs_of(notebook, "SVG").clear()


def edit_code(notebook):
    cell_with(notebook, "perf_counter")["source"].append("\n# another repeat")


def forget_to_run(notebook):
    cell_with(notebook, "show(weights)").update(execution_count=None, outputs=[])


def run_out_of_order(notebook):
    cell_with(notebook, "show(weights)")["execution_count"] = 99


def keep_an_error(notebook):
    outputs_of(notebook, "show(weights)").append({"output_type": "error", "ename": "ValueError", "evalue": "no", "traceback": []})


def keep_a_warning(notebook):
    outputs_of(notebook, "show(weights)").append({"output_type": "stream", "name": "stderr", "text": ["UserWarning: old\n"]})


def keep_a_widget(notebook):
    outputs_of(notebook, "show(weights)")[0]["data"]["application/vnd.jupyter.widget-view+json"] = {"model_id": "1"}


def print_a_folder(notebook):
    outputs_of(notebook, "SVG").append({"output_type": "stream", "name": "stdout", "text": ["saved /tmp" + "/x.svg\n"]})


def compare_a_time(notebook):
    cell_with(notebook, "perf_counter")["metadata"] = {}


def show_no_prediction(notebook):
    outputs_of(notebook, "show(weights)").clear()


def show_no_comparison(notebook):
    outputs_of(notebook, "compare(guess")[:] = outputs_of(notebook, "show(weights)")


def reuse_a_name(notebook):
    output = outputs_of(notebook, "show(nap)")[0]["data"]["application/vnd.minillm.evidence+json"]
    output["entries"][0]["name"] = "weights"


JSON_FAULTS = {
    remove_alt: "without alt text",
    remove_number: "which a re-run cannot compare",
    remove_figure: "shows no figure",
    edit_code: "outputs of other code",
    forget_to_run: "cells that never ran",
    run_out_of_order: "not run from top to bottom",
    keep_an_error: "ends in an error, ValueError: no",
    keep_a_warning: "writes to stderr: 'UserWarning: old'",
    keep_a_widget: "holds a widget",
    print_a_folder: "a folder of one machine",
    compare_a_time: "tag it nbval-ignore-output",
    show_no_prediction: "Predict: no cell shows a labelled number",
    show_no_comparison: "no cell shows compare(predicted, measured)",
    reuse_a_name: "weights names two numbers",
}


@pytest.mark.parametrize(("edit", "message"), JSON_FAULTS.items(), ids=lambda x: getattr(x, "__name__", ""))
def test_a_fault_in_the_cells_is_found(sample, edit, message):
    sample.change(edit)
    assert any(message in fault for fault in sample.faults()), sample.faults()


def test_an_exercise_file_must_exist(sample):
    (sample.root / "labs/c2/m03_kv_cache.py").unlink()
    assert sample.faults() == ["Exercise: labs/c2/m03_kv_cache.py does not exist"]


def test_an_expected_error_is_none(sample):
    sample.change(keep_an_error)
    sample.change(lambda notebook: cell_with(notebook, "show(weights)")["metadata"].update(tags=["raises-exception"]))
    assert sample.faults() == []


def test_what_is_no_module_and_no_notebook_is_said(sample):
    other = sample.path.with_name("99_nothing.ipynb")
    sample.path.rename(other)
    sample.path = other
    assert any("is no module of the course" in fault for fault in sample.faults())
    other.write_text("{")
    assert "cannot be read as a notebook" in sample.faults()[0]
