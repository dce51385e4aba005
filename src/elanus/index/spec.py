"""The definition of an index: its kind, its metric and its build parameters.

An `IndexKind` is one entry of `elanus.index.kinds`: everything that the rest of the code needs to know about
a kind of index. It is declared next to the class that implements it. An `IndexSpec` is an index of such a
kind on one field: `elanus.index.resolve.resolve_index` makes it from a client's parameters. The page
``docs/index-types.md`` lists the kinds and their parameters.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from elanus.core.errors import Internal, InvalidParameter
from elanus.core.index_properties import MMAP_KEY, WARMUP_KEY
from elanus.core.metrics import ITERATOR_PAGE, Metric
from elanus.core.types import KINDS, DataType, VectorForm
from elanus.index.values import bounded, choice, flag, integer, ratio

if TYPE_CHECKING:
    from elanus.index.base import SegmentIndex, VectorIndex
    from elanus.index.files import IndexFileContent

AUTOINDEX = "AUTOINDEX"
"""The wire's name for the kind that suits the field's type."""

INDEX_TYPE_KEY = "index_type"
METRIC_TYPE_KEY = "metric_type"
PARAMS_KEY = "params"
DIM_KEY = "dim"
COMMON_KEYS = frozenset({INDEX_TYPE_KEY, METRIC_TYPE_KEY, DIM_KEY, MMAP_KEY, WARMUP_KEY})

Progress = Callable[[float], None]
"""Called between steps of a build with the completed share, in (0, 1]. An exception ends the build."""

Sent = Mapping[str, object]
"""The parameters of one search, as a client sent them."""


def asks_for_k(sent: Sent) -> bool:
    """Whether a search returns its ``k`` best hits: not one of a range, and not a page of an iterator."""
    return "radius" not in sent and not sent.get(ITERATOR_PAGE)


class Param(Protocol):
    """A build parameter, or a search parameter of a kind."""

    @property
    def default(self) -> Any: ...

    def resolve(self, name: str, sent: Sent, k: int) -> Any:
        """Return the parameter's value, in a search for ``k`` hits. Raises `InvalidParameter`."""


@dataclass(frozen=True, slots=True)
class IntParam:
    """A whole number in [low, high]."""

    low: int
    high: int
    default: int

    def resolve(self, name: str, sent: Sent, k: int) -> int:
        """Return the parameter's value in a search for ``k`` hits. Raises `InvalidParameter`."""
        return integer(name, sent[name], self.low, self.high) if name in sent else self.default


@dataclass(frozen=True, slots=True)
class RequiredInt(IntParam):
    """A whole number in [low, high] that has no default."""

    default: int = 0

    def resolve(self, name: str, sent: Sent, k: int) -> int:
        if name not in sent:
            raise InvalidParameter(f"param '{name}' not exist in json: send {name} with the other parameters")
        return IntParam.resolve(self, name, sent, k)


@dataclass(frozen=True, slots=True)
class NumberParam:
    """A number in [low, high]."""

    low: float
    high: float
    default: float

    def resolve(self, name: str, sent: Sent, k: int) -> float:
        return bounded(name, sent[name], self.low, self.high) if name in sent else self.default


@dataclass(frozen=True, slots=True)
class BoolParam:
    """True or false, in JSON or as text."""

    default: bool

    def resolve(self, name: str, sent: Sent, k: int) -> bool:
        return flag(name, sent[name]) if name in sent else self.default


@dataclass(frozen=True, slots=True)
class RatioParam:
    """A share: a number in [0, 1)."""

    default: float

    def resolve(self, name: str, sent: Sent, k: int) -> float:
        return ratio(name, sent[name]) if name in sent else self.default


@dataclass(frozen=True, slots=True)
class ChoiceParam:
    """One of some names. ``what``: the parameter in the reference's messages."""

    what: str
    names: tuple[str, ...]
    default: str

    def resolve(self, name: str, sent: Sent, k: int) -> str:
        return choice(self.what, sent[name], self.names) if name in sent else self.default


@dataclass(frozen=True, slots=True, eq=False)
class IndexKind:
    """One kind of index.

    ``name``: the wire's. ``on``: the types of the fields it indexes, all of them vectors or none.
    ``build``: from the field's rows, which are a matrix (n, width) in the stored form for vectors
    (`elanus.core.sparse.SparseRows` for sparse ones), else an Arrow array; ``load``: from a file.
    ``over_rows``: serves rows that have no index, exactly; None if the kind needs to be built.
    ``is_automatic``: AUTOINDEX selects it. ``metrics``: those it supports, if not all of the type's.
    ``check``: checks the build parameters together, and with the dimension; raises `InvalidParameter`.
    ``withheld_from``: types of ``on`` for which clients cannot choose it, as in the reference; its files are
    read all the same. ``filed_arrays``: those of its file that are not read when it is loaded.
    ``late_arrays``: those that only some searches need.
    """

    name: str
    on: frozenset[DataType]
    build: Callable[[IndexSpec, Any, Progress], SegmentIndex]
    load: Callable[[IndexSpec, IndexFileContent], SegmentIndex]
    build_params: Mapping[str, Param] = field(default_factory=dict)
    search_params: Mapping[str, Param] = field(default_factory=dict)
    over_rows: Callable[[IndexSpec, Any], VectorIndex] | None = None
    is_automatic: bool = False
    metrics: tuple[Metric, ...] | None = None
    check: Callable[[Mapping[str, Any], int], None] | None = None
    withheld_from: frozenset[DataType] = frozenset()
    filed_arrays: frozenset[str] = frozenset()
    late_arrays: frozenset[str] = frozenset()


@dataclass(frozen=True)
class IndexSpec:
    """A resolved index, ready to build. ``declared_type`` is the type that the client requested.

    It differs from the kind's name only for AUTOINDEX. ``metric``: None for scalars; ``dim``: 0 for scalars.
    """

    kind: IndexKind
    data_type: DataType
    metric: Metric | None = None
    dim: int = 0
    params: Mapping[str, Any] = field(default_factory=dict)
    declared_type: str = ""
    memory_mapped: bool = False

    @property
    def index_type(self) -> str:
        return self.kind.name

    @property
    def metric_type(self) -> Metric:
        """The metric of an index of vectors. Raises `Internal` for others."""
        if self.metric is None:
            raise Internal(f"an index of type {self.index_type} has no metric")
        return self.metric

    @property
    def form(self) -> VectorForm:
        """The form of the vectors. Raises `Internal` for an index of scalars."""
        form = KINDS[self.data_type].vector
        if form is None:
            raise Internal(f"an index of type {self.index_type} on {self.data_type.name} has no vectors")
        return form

    def flattened(self) -> dict[str, str]:
        """Return the resolved parameters as text, as recorded in an index file. `resolve_index` reads them
        back."""
        flat = {INDEX_TYPE_KEY: self.index_type}
        if self.metric is not None:
            flat[METRIC_TYPE_KEY] = str(self.metric)
        flat |= {name: str(value) for name, value in self.params.items()}
        if self.metric is None:
            return flat | {MMAP_KEY: str(self.memory_mapped).lower()}
        return flat | ({MMAP_KEY: "true"} if self.memory_mapped else {})
