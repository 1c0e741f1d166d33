"""Checks of process groups and collectives, against NumPy on the tensors of all ranks."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np

import evergrad as eg
import evergrad.distributed as dist
from evergrad.distributed import ReduceOp
from evergrad.utils.data import DistributedSampler

DTYPES = (
    "float32", "float64", "float16", "bfloat16", "int8", "uint8", "int16", "int32", "int64",
    "complex64", "complex128", "bool",
)  # fmt: skip
SHAPES = ((), (5,), (0, 3), (130, 7))


def rank() -> int:
    return dist.get_rank()


def size() -> int:
    return dist.get_world_size()


def tensor_of(owner: int, dtype: str, shape: tuple[int, ...]) -> Any:
    """The tensor of a rank, which every rank can compute."""
    random = np.random.default_rng([owner, len(shape), *shape])
    values = random.integers(0, 2 if dtype == "bool" else 5, shape)
    return eg.tensor(values.tolist()).reshape(shape).to(getattr(eg, dtype))


def everyone(dtype: str, shape: tuple[int, ...]) -> list[Any]:
    return [tensor_of(owner, dtype, shape) for owner in range(size())]


def same(found: Any, expected: Any) -> None:
    assert found.dtype == expected.dtype and found.shape == expected.shape
    assert found.tolist() == expected.tolist(), (found, expected)


def all_types(function: Callable[[str, tuple[int, ...]], None]) -> Callable[[], None]:
    def check() -> None:
        for dtype in DTYPES:
            for shape in SHAPES:
                function(dtype, shape)

    return check


def _all_reduce(dtype: str, shape: tuple[int, ...]) -> None:
    joined = np.stack([t.to(eg.complex128).numpy() for t in everyone(dtype, shape)])
    ops = {"SUM": np.sum, "PRODUCT": np.prod}
    if not dtype.startswith("complex"):
        ops |= {"MAX": np.max, "MIN": np.min}
        joined = joined.real
    for name, function in ops.items():
        x = tensor_of(rank(), dtype, shape)
        assert dist.all_reduce(x, getattr(ReduceOp, name)) is None
        expected = eg.tensor(function(joined, axis=0)).to(getattr(eg, dtype))
        same(x, expected.reshape(shape))


check_all_reduce = all_types(_all_reduce)


def check_bitwise_reductions() -> None:
    for dtype in ("int32", "uint8", "bool"):
        for name, function in (("BAND", np.bitwise_and), ("BOR", np.bitwise_or),
                               ("BXOR", np.bitwise_xor)):  # fmt: skip
            x = tensor_of(rank(), dtype, (9,))
            dist.all_reduce(x, getattr(ReduceOp, name))
            assert (
                x.tolist() == function.reduce([t.numpy() for t in everyone(dtype, (9,))]).tolist()
            )
    for dtype in ("float32", "bfloat16"):
        refused(lambda dtype=dtype: dist.all_reduce(eg.ones(2, dtype=getattr(eg, dtype)),
                                                    ReduceOp.BAND), "for integers")  # fmt: skip


def check_average() -> None:
    for dtype in ("float32", "bfloat16", "float16", "complex64"):
        x = eg.full((3,), float(rank() + 1)).to(getattr(eg, dtype))
        dist.all_reduce(x, ReduceOp.AVG)
        assert x.to(eg.complex64).tolist() == [(size() + 1) / 2] * 3


def check_sums_and_means_of_halves_are_rounded_once() -> None:
    """A mean is in range where the sum is not; and 1 + 2^-11 + 2^-11 in float16 is not 1."""
    x = eg.full((5,), 60_000.0).half()
    dist.all_reduce(x, ReduceOp.AVG)
    assert x.tolist() == [60_000.0] * 5
    y = eg.full((size() * 2,), 60_000.0).half()
    part = eg.zeros(2).half()
    dist.reduce_scatter_tensor(part, y, ReduceOp.AVG)
    assert part.tolist() == [60_000.0] * 2
    z = eg.tensor([1.0 if rank() == 0 else 2.0**-11]).half()
    dist.all_reduce(z)
    exact = 1.0 + (size() - 1) * 2.0**-11
    assert z.item() == float(np.float16(exact)), z


def check_reductions_without_a_meaning_are_refused() -> None:
    for dtype in (eg.complex64, eg.complex128):
        for op in (ReduceOp.MIN, ReduceOp.MAX):
            refused(lambda op=op, d=dtype: dist.all_reduce(eg.ones(2, dtype=d), op), "complex")
        refused(lambda d=dtype: dist.all_reduce(eg.ones(2, dtype=d), ReduceOp.BXOR), "for integers")


def check_tensors_of_all_layouts() -> None:
    base = eg.zeros(4, 6)
    view = base[::2, 1::2]
    view.copy_(eg.full((2, 3), 1.0))
    dist.all_reduce(view)
    assert base.sum().item() == 6 * size() and view.tolist() == [[size()] * 3] * 2
    for x in (eg.arange(4.0).flip(0), eg.ones(3).expand(2, 3), eg.tensor([1 + 2j]).conj()):
        expected = (x * size()).tolist()
        dist.all_reduce(x)
        assert x.tolist() == expected
    out = eg.zeros(3, 2 * size()).t()
    dist.all_gather_into_tensor(out, eg.full((2, 3), float(rank())))
    assert out.tolist() == [[float(r)] * 3 for r in range(size()) for _ in range(2)]
    out = eg.zeros(3, 2).t()
    given = [eg.full((3, 2), float(r)).t() for r in range(size())] if rank() == 0 else None
    dist.scatter(out, given, src=0)
    assert out.tolist() == [[rank()] * 3] * 2


def _all_gather(dtype: str, shape: tuple[int, ...]) -> None:
    expected = everyone(dtype, shape)
    found = [eg.zeros(shape).to(getattr(eg, dtype)) for _ in range(size())]
    dist.all_gather(found, tensor_of(rank(), dtype, shape))
    for one, other in zip(found, expected, strict=True):
        same(one, other)
    stacked = eg.zeros((size(), *shape)).to(getattr(eg, dtype))
    dist.all_gather_into_tensor(stacked, tensor_of(rank(), dtype, shape))
    same(stacked, eg.stack(expected))
    if shape:
        joined = eg.zeros((size() * shape[0], *shape[1:])).to(getattr(eg, dtype))
        dist.all_gather_into_tensor(joined, tensor_of(rank(), dtype, shape))
        same(joined, eg.cat(expected))


check_all_gather = all_types(_all_gather)


def _rooted(dtype: str, shape: tuple[int, ...]) -> None:
    kind = getattr(eg, dtype)
    for root in (0, size() - 1):
        x = tensor_of(rank(), dtype, shape)
        dist.broadcast(x, root)
        same(x, tensor_of(root, dtype, shape))
        parts = [eg.zeros(shape).to(kind) for _ in range(size())] if rank() == root else None
        dist.gather(tensor_of(rank(), dtype, shape), parts, dst=root)
        if parts is not None:
            for one, other in zip(parts, everyone(dtype, shape), strict=True):
                same(one, other)
        x = eg.zeros(shape).to(kind)
        dist.scatter(x, everyone(dtype, shape) if rank() == root else None, src=root)
        same(x, tensor_of(rank(), dtype, shape))


check_broadcast_gather_scatter = all_types(_rooted)


def check_reduce() -> None:
    for dtype in ("float32", "bfloat16", "int64", "bool"):
        for root in range(size()):
            x = own = tensor_of(rank(), dtype, (4, 3))
            before = own.tolist()
            dist.reduce(x, root, ReduceOp.MAX)
            top = np.max([t.to(eg.float32).numpy() for t in everyone(dtype, (4, 3))], axis=0)
            if rank() == root:
                assert x.to(eg.float32).tolist() == top.tolist()
            else:
                assert x.tolist() == before


def check_reduce_scatter() -> None:
    for dtype in ("float32", "float64", "bfloat16", "float16", "int32", "complex64"):
        kind = getattr(eg, dtype)
        sent = [tensor_of(rank() + 10 * part, dtype, (3, 2)) for part in range(size())]
        wide = eg.complex128
        total = sum(tensor_of(r + 10 * rank(), dtype, (3, 2)).to(wide) for r in range(size()))
        for call in (
            lambda out, sent=sent: dist.reduce_scatter(out, sent),
            lambda out, sent=sent: dist.reduce_scatter_tensor(out, eg.cat(sent)),
            lambda out, sent=sent: dist.reduce_scatter_tensor(out, eg.stack(sent)),
        ):
            out = eg.zeros(3, 2).to(kind)
            call(out)
            same(out, total.real.to(kind) if dtype[0] != "c" else total.to(kind))


def check_all_to_all() -> None:
    for dtype in ("float32", "bfloat16", "int64", "bool"):
        kind = getattr(eg, dtype)
        equal = eg.cat([tensor_of(10 * rank() + part, dtype, (2, 3)) for part in range(size())])
        out = eg.zeros_like(equal)
        dist.all_to_all_single(out, equal)
        same(out, eg.cat([tensor_of(10 * part + rank(), dtype, (2, 3)) for part in range(size())]))
        # Rank r sends s + 1 rows to rank s.
        sent = [tensor_of(10 * rank() + s, dtype, (s + 1, 2)) for s in range(size())]
        expected = [tensor_of(10 * s + rank(), dtype, (rank() + 1, 2)) for s in range(size())]
        out = eg.zeros(size() * (rank() + 1), 2).to(kind)
        dist.all_to_all_single(out, eg.cat(sent), [rank() + 1] * size(),
                               [s + 1 for s in range(size())])  # fmt: skip
        same(out, eg.cat(expected))
        parts = [eg.zeros(rank() + 1, 2).to(kind) for _ in range(size())]
        dist.all_to_all(parts, sent)
        for one, other in zip(parts, expected, strict=True):
            same(one, other)


def check_strided_and_large_tensors() -> None:
    whole = eg.arange(12.0).reshape(3, 4)
    x = whole.t()
    dist.all_reduce(x)
    assert whole.tolist() == (eg.arange(12.0).reshape(3, 4) * size()).tolist()
    dist.broadcast(whole[:, 1], size() - 1)
    dist.all_gather([whole[0, :2], *[eg.zeros(2) for _ in range(size() - 1)]], eg.ones(2))
    assert whole[0, :2].tolist() == [1, 1]
    large = eg.full((300_001,), 1.5)
    dist.all_reduce(large)
    assert float(large.min()) == float(large.max()) == 1.5 * size()


def check_async_handles() -> None:
    tensors = [eg.full((1000 * (i + 1),), float(i)) for i in range(20)]
    works = [dist.all_reduce(t, async_op=True) for t in tensors]
    for i in reversed(range(20)):
        assert works[i].wait()
        assert tensors[i].tolist() == [i * size()] * (1000 * (i + 1))
    assert all(w.is_completed() and w.is_success() and w.exception() is None for w in works)
    assert works[3].result()[0] is tensors[3]
    future = dist.all_reduce(eg.ones(2), async_op=True).get_future()
    assert future.then(lambda f: f.value()[0] / size()).wait().tolist() == [1, 1]
    assert dist.barrier(async_op=True).wait()


def check_a_write_is_noticed_by_backward() -> None:
    x = eg.ones(3, requires_grad=True)
    y = x * 2
    z = y * y
    dist.all_reduce(y)
    refused(lambda: z.sum().backward(), "modified|version|written|overwritten")


def check_point_to_point() -> None:
    following, former = (rank() + 1) % size(), (rank() - 1) % size()
    for dtype in DTYPES:
        x = tensor_of(rank(), dtype, (3, 4))
        out = eg.zeros(3, 4).to(getattr(eg, dtype))
        works = dist.batch_isend_irecv(
            [dist.P2POp(dist.isend, x, following), dist.P2POp(dist.irecv, out, former)]
        )
        for work in works:
            work.wait()
        same(out, tensor_of(former, dtype, (3, 4)))
    if rank() == 0:
        for tag in (7, 3):
            dist.send(eg.full((2,), float(tag)), 1, tag=tag)
    elif rank() == 1:
        found = {tag: eg.zeros(2) for tag in (3, 7)}
        for tag, out in found.items():
            assert dist.recv(out, 0, tag=tag) == 0
            assert out.tolist() == [tag, tag]
    if rank() == 1:
        dist.send(eg.ones(1), 0)
    elif rank() == 0:
        assert dist.recv(eg.zeros(1)) == 1
    dist.barrier()


def check_a_message_of_another_type_is_refused() -> None:
    if rank() == 0:
        dist.send(eg.ones(3), 1)
        dist.send(eg.ones(2, dtype=eg.int64), 1)
        dist.send(eg.full((2,), 5.0), 1)
    elif rank() == 1:
        refused(lambda: dist.recv(eg.zeros(2), 0), r"float32\[3\]")
        refused(lambda: dist.recv(eg.zeros(2), 0), r"int64\[2\]")
        x = eg.zeros(2)
        dist.recv(x, 0)
        assert x.tolist() == [5, 5]
    refused(lambda: dist.send(eg.ones(1), rank()), "should not be the same")
    dist.barrier()


def check_objects() -> None:
    found: list[Any] = [None] * size()
    dist.all_gather_object(found, {"rank": rank(), "long": "x" * 1000 * rank()})
    assert [f["rank"] for f in found] == list(range(size()))
    given = [rank(), "a" * rank(), None]
    dist.broadcast_object_list(given, src=size() - 1)
    assert given == [size() - 1, "a" * (size() - 1), None]
    collected: list[Any] = [None] * size()
    dist.gather_object(("it", rank()), collected if rank() == 0 else None, dst=0)
    assert rank() != 0 or collected == [("it", r) for r in range(size())]
    out: list[Any] = [None]
    dist.scatter_object_list(out, [{r} for r in range(size())] if rank() == 0 else None, src=0)
    assert out == [{rank()}]


def check_groups() -> None:
    pair = dist.new_group([0, 1])
    alone = dist.new_group([size() - 1])
    backwards = dist.new_group(list(reversed(range(size()))), sort_ranks=False)
    x = eg.full((2,), float(rank() + 1))
    if rank() < 2:
        dist.all_reduce(x, group=pair)
        assert x.tolist() == [3, 3]
        assert dist.get_process_group_ranks(pair) == [0, 1] and dist.get_group_rank(pair, 1) == 1
    else:
        assert pair is dist.GroupMember.NON_GROUP_MEMBER and dist.get_rank(pair) == -1
        refused(lambda: dist.all_reduce(x, group=pair), "not in the group")
    if rank() == size() - 1:
        y = eg.ones(1)
        dist.all_reduce(y, group=alone)
        assert y.item() == 1 and dist.get_world_size(alone) == 1
    assert dist.get_rank(backwards) == size() - 1 - rank()
    assert dist.get_global_rank(backwards, 0) == size() - 1
    y = eg.tensor([float(rank())])
    dist.broadcast(y, src=0, group=backwards)
    assert y.item() == 0
    dist.broadcast(y := eg.tensor([float(rank())]), group_src=0, group=backwards)
    assert y.item() == size() - 1
    dist.destroy_process_group(backwards)


def check_device_mesh() -> None:
    mesh = dist.init_device_mesh("cpu", (size() // 2, 2), mesh_dim_names=("dp", "tp"))
    assert mesh.size() == size() and mesh.shape == (size() // 2, 2) and mesh.ndim == 2
    x = eg.tensor([float(rank())])
    dist.all_reduce(x, group=mesh.get_group("tp"))
    first = rank() - rank() % 2
    assert x.item() == 2 * first + 1
    assert mesh.get_coordinate() == [rank() // 2, rank() % 2]
    assert mesh["tp"].get_group().ranks == [first, first + 1]
    assert mesh.get_local_rank("tp") == rank() % 2


def check_distributed_sampler() -> None:
    sampler: Any = DistributedSampler(range(10), shuffle=True, seed=3)
    found: list[Any] = [None] * size()
    dist.all_gather_object(found, list(sampler))
    assert sorted({i for part in found for i in part}) == list(range(10))


# -- ranks that disagree ------------------------------------------------------------------------


def refused(call: Callable[[], Any], *patterns: str) -> str:
    """The text of the error, which must match; an error on this rank leaves the group usable."""
    try:
        call()
    except Exception as error:
        text = str(error)
        for pattern in patterns:
            assert re.search(pattern, text), text
        return text
    raise AssertionError(f"no error with {patterns}")


def last() -> bool:
    return rank() == size() - 1


def check_other_shape() -> None:
    text = refused(lambda: dist.all_reduce(eg.ones(3 if last() else 2)), "ranks disagree")
    assert f"rank {size() - 1}: all_reduce(float32[3], op=SUM) at" in text
    assert "float32[2]" in text and "collectives.py:" in text and "nothing was sent" in text


def check_other_dtype() -> None:
    kind = eg.float64 if last() else eg.float32
    refused(lambda: dist.all_reduce(eg.ones(3, dtype=kind)), "float64", "float32")


def check_other_reduction() -> None:
    op = ReduceOp.MAX if last() else ReduceOp.SUM
    refused(lambda: dist.all_reduce(eg.ones(3), op), "op=MAX", "op=SUM")


def check_other_root() -> None:
    refused(lambda: dist.broadcast(eg.ones(3), int(last())), "src=0", "src=1")


def check_other_collective() -> None:
    def call() -> None:
        if last():
            dist.barrier()
        else:
            dist.all_reduce(eg.ones(1))

    refused(call, r"barrier\(\) at", "all_reduce")


def check_other_order() -> None:
    def call() -> None:
        first, second = (eg.ones(2), eg.ones(3)) if last() else (eg.ones(3), eg.ones(2))
        dist.all_reduce(first)
        dist.all_reduce(second)

    refused(call, r"float32\[3\]", r"float32\[2\]")


def check_other_group() -> None:
    refused(lambda: dist.new_group([0] if last() else [0, 1]), r"new_group\(\[0, 1\]\)")


def check_other_async_order() -> None:
    works = [dist.all_reduce(eg.ones(2 + (i == 3 and last())), async_op=True) for i in range(6)]
    for i, work in enumerate(works):
        if i == 3:
            refused(lambda work=work: work.wait(), "ranks disagree")
            assert isinstance(work.exception(), dist.DistributedError)
        else:
            work.wait()


def check_other_splits() -> None:
    def call() -> None:
        rows = [1] * size()
        out = eg.zeros(size() + last())
        received = [*rows[:-1], 1 + last()]
        dist.all_to_all_single(out, eg.ones(size()), received, rows)

    refused(call, "sends 1 elements to rank", "expects 2")


def check_labels_name_what_is_reduced() -> None:
    x = eg.ones(2 + last())
    refused(lambda: dist.all_reduce(x, label="bucket 3 (layer.weight)"), "of bucket 3")


def check_the_group_works_after_disagreements() -> None:
    x = eg.ones(4)
    dist.all_reduce(x)
    assert x.tolist() == [size()] * 4


def check_bad_arguments_reach_no_other_rank() -> None:
    x = eg.ones(2)
    refused(lambda: dist.all_gather([x], x), "entries")
    refused(lambda: dist.all_gather([x] * (size() - 1) + [eg.ones(3)], x), "float32")
    refused(lambda: dist.broadcast(x, size()), f"invalid rank {size()}")
    refused(lambda: dist.broadcast(x, -1), "invalid rank -1")
    refused(lambda: dist.reduce_scatter_tensor(x, x), "times as many")
    refused(lambda: dist.all_gather_into_tensor(x, x), "times as many")
    refused(lambda: dist.all_reduce([x]), "must be a Tensor")
    refused(lambda: dist.scatter(x, [x] * size() if rank() else None, src=0), "scatter_list")
    refused(lambda: dist.init_process_group(), "twice")
