"""What is shipped: found in every kernel's file, described without mistakes."""

import pkgutil

import pytest
from minillm.kernels import catalog
from minillm.kernels.catalog import shipped, variant
from minillm.kernels.instruments.portable import function_of, portable

from minillm import kernels


def test_every_variant_names_a_kernel_and_only_its_arguments():
    assert len(shipped()) > 20
    for each in shipped():
        assert portable(each.kernel).module == each.kernel.partition(":")[0], each.name
        module = __import__(each.kernel.partition(":")[0], fromlist=["_"])
        function = function_of(getattr(module, each.kernel.partition(":")[2]))
        arguments = set(function.__code__.co_varnames[: function.__code__.co_argcount])
        assert set(each.signature) | set(each.constexprs) | set(each.aligned) <= arguments, each.name
        assert each.num_warps in (1, 2, 4, 8, 16, 32), each.name


def test_a_variant_by_its_name():
    assert variant(shipped()[-1].name) is shipped()[-1]
    with pytest.raises(KeyError, match=f"there are {shipped()[0].name}"):
        variant("nothing")


def test_two_variants_of_one_name_are_refused(monkeypatch):
    class Module:
        SHIPPED = (shipped()[0],) * 2

    one = next(pkgutil.iter_modules(kernels.__path__))
    monkeypatch.setattr(catalog.importlib, "import_module", lambda name: Module)
    monkeypatch.setattr(catalog.pkgutil, "iter_modules", lambda path: [one])
    with pytest.raises(ValueError, match=f"two variants are called {shipped()[0].name}"):
        shipped.__wrapped__()
