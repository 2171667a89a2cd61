"""A complete module in a few cells, for the tests of the notebook tools: everything a check asks for and nothing more."""

from pathlib import Path

from notebooks import opening

MODULE = "2.3"
NOTEBOOK = Path("series/c2_anatomy/03_kv_cache.ipynb")
UNCOMPARED = {"tags": ["nbval-ignore-output"]}
LOAD = 'checkpoint=None, dtype="float32", input_tokens=None, output_tokens=None, concurrency=1'
CITATION = "[`Scheduler.schedule`](cite:vllm/vllm/v1/core/sched/scheduler.py#Scheduler.schedule)"

CELLS = [
    ("md", f"{opening(MODULE)}\n\nA *cache* keeps what would be computed again."),
    (
        "md",
        "## Predict\n\nThe weights take [?](evidence:weights), [?](evidence:weights:.0f) in round figures.\n\n$2 \\cdot 8$ GB",
    ),
    ("code", "from shared.comparison import compare, show\nfrom shared.evidence import computed, measured"),
    ("code", 'weights = computed("weights", 16.06, "GB", formula="2 * p", inputs={"p": 8.03})\nshow(weights)'),
    ("md", "## Build · Measure\n\n```python\nwait = '20 ms'  # code is no claim\n```"),
    (
        "code",
        f"""
        import time

        begin = time.perf_counter()
        nap = measured("nap", [time.perf_counter() - begin for _ in range(3)], "s", environment={{"cpu": "any"}}, {LOAD})
        show(nap)
        """,
        UNCOMPARED,
    ),
    (
        "code",
        """
        from IPython.display import SVG, display

        display(SVG('<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9"><path d="M0 0L9 9"/></svg>'))
        print("points:", 2)
        """,
        {"alt": "Seconds against tokens: the points lie on the line."},
    ),
    ("md", "## Explain the gap\n\nIt took [?](evidence:nap)."),
    ("code", 'guess = computed("guess", 1e-6, "s", formula="c", inputs={"c": 1e-6})\nshow(compare(guess, nap))', UNCOMPARED),
    ("md", f"## In real engines\n\nvLLM has {CITATION}. See [the sources](#sources) and [the licence](../../LICENSE)."),
    ("md", "## What it costs\n\nMemory, on a 24 GB card.\n\n<!-- arithmetic -->\n\n- 2 GB and 3 GB are 5 GB"),
    ("md", "## Exercise\n\nWrite `labs/c2/m03_kv_cache.py`.\n\n```sh\nlabs check 2.3\n```"),
    ("md", "## Check yourself\n\n" + "\n".join(f"{n}. Why? <details><summary>Answer</summary>So.</details>" for n in "123")),
    ("md", "## What this does not show\n\nMuch.\n\n### Sources\n\n- Somebody, *Something*, 2023"),
]
