"""Our dataclasses behave as those of the standard library."""

import copy
import dataclasses
import inspect
import pickle
import subprocess
import sys
from typing import ClassVar, Generic, TypeVar

import pytest

from wellkept.core import values

Item = TypeVar("Item")


def define(dataclass, field):
    """Return one class of each form that the program uses."""

    @dataclass(frozen=True, slots=True)
    class Point:
        """A point."""

        x: int
        y: int = 0
        tags: tuple[str, ...] = field(default=(), repr=False)
        seen: list[int] = field(default_factory=list, compare=False)
        ORIGIN: ClassVar[int] = 7

    @dataclass(frozen=True, slots=True)
    class Named(Point):
        name: str = "none"

    @dataclass(slots=True)
    class Counter:  # noqa: PLW1641 - what is tested
        count: int = 0

        def __eq__(self, other: object) -> bool:
            return isinstance(other, type(self)) and self.count == other.count

    @dataclass
    class Open:
        a: "int"
        b: "list[int]" = field(default_factory=list)

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Keywords:
        b: int = 1
        a: int

    @dataclass(frozen=True, slots=True, eq=False)
    class Same:
        value: int

    @dataclass(frozen=True)
    class Empty:
        pass

    @dataclass(frozen=True, slots=True)
    class Box(Generic[Item]):
        item: Item

    return {each.__name__: each for each in (Point, Named, Counter, Open, Keywords, Same, Empty, Box)}


OURS = define(values.dataclass, values.field)
THEIRS = define(dataclasses.dataclass, dataclasses.field)
CALLS = [
    ("Point", (1,), {}),
    ("Point", (1, 2), {"tags": ("a",), "seen": [3]}),
    ("Named", (1,), {"name": "n"}),
    ("Counter", (3,), {}),
    ("Open", (1,), {}),
    ("Keywords", (), {"a": 2}),
    ("Same", (5,), {}),
    ("Empty", (), {}),
    ("Box", ("x",), {}),
]


@pytest.mark.parametrize(("name", "given", "named"), CALLS)
def test_an_instance_is_like_one_of_the_standard_decorator(name, given, named):
    """Values, repr, hash, slots, match arguments, `asdict`, `astuple` and `fields` are the same."""
    ours, theirs = OURS[name](*given, **named), THEIRS[name](*given, **named)

    assert repr(ours) == repr(theirs)
    assert dataclasses.asdict(ours) == dataclasses.asdict(theirs) == values.asdict(ours)
    assert dataclasses.astuple(ours) == dataclasses.astuple(theirs) == values.astuple(ours)
    assert [(each.name, each.type, each.kw_only, each.repr, each.compare) for each in dataclasses.fields(ours)] == [
        (each.name, each.type, each.kw_only, each.repr, each.compare) for each in dataclasses.fields(theirs)
    ]
    assert type(ours).__match_args__ == type(theirs).__match_args__
    assert getattr(type(ours), "__slots__", None) == getattr(type(theirs), "__slots__", None)
    assert (type(ours).__hash__ is None) == (type(theirs).__hash__ is None)
    assert type(ours).__doc__ == type(theirs).__doc__ or type(ours).__doc__ is None
    assert dataclasses.is_dataclass(type(ours))


@pytest.mark.parametrize(("name", "given", "named"), CALLS)
def test_comparing_copying_and_replacing(name, given, named):
    """Equal instances are equal, copies and pickles too; a class without `eq` compares by identity."""
    kind = OURS[name]
    one, other = kind(*given, **named), kind(*given, **named)

    assert (one == other) is (THEIRS[name](*given, **named) == THEIRS[name](*given, **named))
    assert one != object()
    assert repr(copy.copy(one)) == repr(copy.deepcopy(one)) == repr(one)
    assert repr(values.replace(one)) == repr(dataclasses.replace(one)) == repr(one)


def test_a_dict_has_no_classes_in_it():
    """Values in containers and in each other become dicts, also those of the other decorator."""
    inner, theirs = OURS["Point"](1), THEIRS["Point"](2)

    found = values.asdict(OURS["Box"]({"a": [inner, (theirs,)], "b": {3}}))

    point = {"x": 1, "y": 0, "tags": (), "seen": []}
    assert found == {"item": {"a": [point, ({**point, "x": 2},)], "b": {3}}}
    assert found["item"]["a"][0]["seen"] is not inner.seen
    assert values.asdict(theirs) == {**point, "x": 2}


def test_a_value_cannot_be_changed():
    """Assigning to or deleting a field of a frozen one raises the standard error; equal ones have one hash."""
    point = OURS["Point"](1, 2)

    with pytest.raises(dataclasses.FrozenInstanceError):
        point.x = 3
    with pytest.raises(dataclasses.FrozenInstanceError):
        del point.x
    assert hash(OURS["Empty"]()) == hash(OURS["Empty"]())
    assert {OURS["Same"](1), OURS["Same"](1)}.__len__() == 2
    assert values.replace(point, x=9).x == 9
    assert hash(OURS["Keywords"](a=1)) == hash(OURS["Keywords"](a=1))


def test_wrong_arguments_are_named():
    """The error says which argument is missing or unknown, as for any function."""
    with pytest.raises(TypeError, match=r"Point\.__init__\(\) missing 1 required positional argument: 'x'"):
        OURS["Point"]()
    with pytest.raises(TypeError, match="'z'"):
        OURS["Point"](1, z=1)
    with pytest.raises(TypeError):
        OURS["Keywords"](1)
    with pytest.raises(ValueError, match="mutable default"):

        @values.dataclass
        class Wrong:
            items: list[int] = []  # noqa: RUF012 - what is tested


def test_classes_of_both_decorators_can_be_derived_from_each_other():
    """A plugin that derives with the standard decorator gets the fields of ours, and the other way round."""

    @dataclasses.dataclass(frozen=True, slots=True)
    class Theirs(OURS["Point"]):
        z: int = 5

    @values.dataclass(frozen=True, slots=True)
    class Ours(THEIRS["Point"]):
        z: int = 5

    assert repr(Theirs(1)).endswith("Theirs(x=1, y=0, seen=[], z=5)")
    assert repr(Ours(1)).endswith("Ours(x=1, y=0, seen=[], z=5)")
    with pytest.raises(dataclasses.FrozenInstanceError):
        Theirs(1).x = 2


@values.dataclass(frozen=True, slots=True)
class Sent:
    """Defined at the top of a module, as pickles need it."""

    text: str


def test_a_frozen_value_can_be_pickled():
    """Slots and frozen attributes do not get in the way."""
    assert pickle.loads(pickle.dumps(Sent("a"))) == Sent("a")


def test_patterns_match_positions():
    """`match` reads the fields in order."""
    match Sent("a"):
        case Sent(text):
            assert text == "a"


def test_a_method_is_compiled_with_the_first_instance():
    """Until then the class has a stub, and nothing of the standard library is loaded for it."""
    code = (
        "import sys; from wellkept.core.values import dataclass\n"
        "@dataclass(frozen=True, slots=True)\nclass A:\n    x: int\n"
        "before = A.__init__; A(1); assert A.__init__ is not before; assert A(2).x == 2; repr(A(1)); A(1) == A(2)\n"
        "assert 'dataclasses' not in sys.modules and 'inspect' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    assert list(inspect.signature(Sent("a").__init__).parameters) == ["text"]


def test_an_unguarded_value_is_like_a_frozen_one_but_for_assignments():
    """It compares, hashes and copies as before; only the type checker refuses to change it."""

    @values.unguarded
    @values.dataclass(frozen=True, slots=True)
    class Point:
        x: int
        y: int = 2

    point = Point(1)
    assert (point, hash(point), copy.copy(point)) == (Point(1, 2), hash(Point(1, 2)), Point(1, 2))
    point.x = 5
    assert point == Point(5, 2)


def test_only_a_frozen_class_can_be_unguarded():
    """A class without a guard has nothing to take away."""

    @values.dataclass(slots=True)
    class Point:
        x: int

    with pytest.raises(AssertionError, match="Point is not frozen"):
        values.unguarded(Point)
