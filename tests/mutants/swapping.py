"""Put a mutant into loaded functions, or into a module before its import."""

import ast
import gc
import importlib.abc
import importlib.machinery
import sys
from collections.abc import Iterator, Sequence
from types import CodeType, FunctionType, ModuleType

from tests.mutants.edits import ROOT, function_of


class NotSwappableError(Exception):
    """The change is outside of functions or changes a closure, so it needs a new process."""


def swap(module: str, symbol: str, tree: ast.Module) -> None:
    """Replace the code of the loaded functions of a symbol. Raises NotSwappableError."""
    outermost = function_of(tree, symbol)
    if outermost is None:
        raise NotSwappableError(symbol)
    path = str(ROOT / module)
    codes = {
        (code.co_qualname, code.co_firstlineno): code
        for code in _codes(compile(tree, path, "exec"))
        if code.co_qualname == outermost
    }
    gc.unfreeze()
    functions = [
        each
        for each in gc.get_objects()
        if isinstance(each, FunctionType) and each.__code__.co_filename == path
    ]
    swapped = 0
    for function in functions:
        new = codes.get((function.__code__.co_qualname, function.__code__.co_firstlineno))
        if new is None:
            continue
        if new.co_freevars != function.__code__.co_freevars:
            raise NotSwappableError(symbol)
        function.__code__ = new
        swapped += 1
    if not swapped:
        raise NotSwappableError(symbol)


def _codes(code: CodeType) -> Iterator[CodeType]:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant
            yield from _codes(constant)


class ChangedModule(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """An import hook that loads one module from a changed tree."""

    def __init__(self, module: str, tree: ast.Module) -> None:
        self._name = module.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        self._path, self._tree = str(ROOT / module), tree

    def install(self) -> None:
        """Register the hook. Raises NotSwappableError if the module is already imported."""
        if self._name in sys.modules:
            raise NotSwappableError(self._name)
        sys.meta_path.insert(0, self)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Find the changed module, and leave other modules to other finders."""
        del path, target
        if fullname != self._name:
            return None
        found = importlib.machinery.ModuleSpec(
            fullname, self, origin=self._path, is_package=self._path.endswith("__init__.py")
        )
        found.has_location = True
        if found.submodule_search_locations is not None:
            found.submodule_search_locations.append(self._path.removesuffix("/__init__.py"))
        return found

    def exec_module(self, module: ModuleType) -> None:
        """Run the changed code."""
        code = compile(self._tree, self._path, "exec")
        exec(code, module.__dict__)  # noqa: S102 - the product's own code
