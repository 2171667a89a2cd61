"""Hides the repository's folder `kernels/` from `import kernels`, and nothing else.

The trap: Python started in the repository's root has that folder on sys.path, so `import kernels` finds ours. transformers and
accelerate ask for a package of that name (Hugging Face's) and would take ours for it. Ours is called `minillm.kernels`.

`make setup` runs this file once: it copies itself into the virtual environment with a .pth file, so that every Python started
there, notebooks included, imports it first. It puts a hook before Python's own for folders on sys.path. The hook takes charge
of one kind of folder, a root that holds both kernels/ and minillm/, wherever it lies, and there it denies the one name.
Hugging Face's package stays importable when it is installed.
"""

import os
import sys
from importlib.machinery import (
    BYTECODE_SUFFIXES,
    EXTENSION_SUFFIXES,
    SOURCE_SUFFIXES,
    ExtensionFileLoader,
    FileFinder,
    SourceFileLoader,
    SourcelessFileLoader,
)

LOADERS = (
    (ExtensionFileLoader, EXTENSION_SUFFIXES),
    (SourceFileLoader, SOURCE_SUFFIXES),
    (SourcelessFileLoader, BYTECODE_SUFFIXES),
)


class RootFinder(FileFinder):
    """Finds modules in one folder as Python would, except the top-level name `kernels`."""

    def find_spec(self, fullname, target=None):
        return None if fullname == "kernels" else super().find_spec(fullname, target)


def root_hook(path):
    """A finder for the repository's root; ImportError, the way a path hook declines, for every other folder."""
    if not all(os.path.isfile(os.path.join(path, name, "__init__.py")) for name in ("kernels", "minillm")):
        raise ImportError
    return RootFinder(path, *LOADERS)


def activate():
    if root_hook not in sys.path_hooks:
        sys.path_hooks.insert(0, root_hook)
        sys.path_importer_cache.clear()  # folders of PYTHONPATH were given a finder before this ran


def install():
    """Copies this file into the running environment's site-packages and has it imported at every start."""
    import shutil
    import sysconfig

    folder = sysconfig.get_paths()["purelib"]
    shutil.copyfile(__file__, os.path.join(folder, "minillm_kernels_guard.py"))
    with open(os.path.join(folder, "minillm_kernels_guard.pth"), "w") as pth:
        pth.write("import minillm_kernels_guard; minillm_kernels_guard.activate()\n")


if __name__ == "__main__":
    install()
