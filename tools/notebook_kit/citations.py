"""Other engines' code is cited by a link that can be checked, never as a bare path that nobody would notice going stale."""

from __future__ import annotations

import re
from collections.abc import Iterator

from notebook_kit.cells import Notebook
from notebook_kit.prose import FENCE
from shared.citations import LINK, check_all, packages


def faults(notebook: Notebook) -> Iterator[str]:
    bare = re.compile(rf"`((?:{'|'.join(map(re.escape, packages()))})/[\w./-]+\.\w+)`")
    for cell in notebook["cells"]:
        if cell["cell_type"] == "markdown":
            where = f"cell {cell.get('id')}"
            yield from (f"{where}: {wrong}" for wrong in check_all(cell["source"]))
            for path in bare.findall(LINK.sub("", FENCE.sub("", cell["source"]))):
                yield f"{where}: cites {path} unchecked; write [`symbol`](cite:package/path#symbol), see shared/citations.py"
