"""All verbs of a proxy are one class made of families: their names must not clash, and all must be there."""

from __future__ import annotations

from collections import Counter

from elanus.proxy.api.verbs import Verbs
from elanus.proxy.verbs.family import VerbFamily
from elanus.proxy.verbs.mutations import Mutations
from elanus.proxy.verbs.proxy_verbs import ProxyVerbs

FAMILIES = [kind for kind in ProxyVerbs.__mro__ if issubclass(kind, VerbFamily) and kind is not VerbFamily]


def test_no_two_families_share_a_name() -> None:
    """One of two helpers with one name would be called in place of the other."""
    assert Mutations in FAMILIES
    own = Counter(name for kind in FAMILIES for name in vars(kind) if not name.startswith("__"))
    assert {name for name, count in own.items() if count > 1} == set()


def test_every_verb_is_implemented() -> None:
    declared = {name for part in Verbs.__mro__ for name in vars(part) if not name.startswith("_")}
    assert len(declared) > 80
    assert {name for name in declared if not callable(getattr(ProxyVerbs, name, None))} == set()
