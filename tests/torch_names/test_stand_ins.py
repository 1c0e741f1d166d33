"""What is not there answers as PyTorch's CPU build does, or does nothing."""

from __future__ import annotations

import time
import warnings
from types import ModuleType
from typing import Any

import pytest

import evergrad
from twins import agree, refuse

# -- devices ------------------------------------------------------------------------------------

QUESTIONS = [
    lambda ns: ns.cuda.is_available(),
    lambda ns: ns.cuda.device_count(),
    lambda ns: ns.cuda.is_initialized(),
    lambda ns: ns.cuda.is_bf16_supported(),
    lambda ns: ns.cuda.memory_allocated(),
    lambda ns: ns.cuda.max_memory_allocated(),
    lambda ns: ns.cuda.memory_reserved(),
    lambda ns: ns.cuda.max_memory_reserved(),
    lambda ns: dict(ns.cuda.memory_stats()),
    lambda ns: ns.cuda.get_arch_list(),
    lambda ns: ns.cuda.get_rng_state_all(),
    lambda ns: ns.cuda.manual_seed(1),
    lambda ns: ns.cuda.manual_seed_all(1),
    lambda ns: ns.cuda.empty_cache(),
    lambda ns: isinstance(ns.ones(1), ns.cuda.FloatTensor),
    lambda ns: ns.backends.mps.is_available(),
    lambda ns: ns.backends.mps.is_built(),
    lambda ns: ns.backends.cuda.is_built(),
    lambda ns: ns.backends.cudnn.is_available(),
    lambda ns: ns.backends.cudnn.version(),
    lambda ns: ns.backends.cudnn.enabled,
    lambda ns: ns.backends.cudnn.benchmark,
    lambda ns: ns.backends.cudnn.deterministic,
    lambda ns: ns.backends.cudnn.allow_tf32,
    lambda ns: ns.backends.cuda.matmul.allow_tf32,
    lambda ns: ns.backends.cuda.flash_sdp_enabled(),
    lambda ns: ns.backends.opt_einsum.is_available(),
    lambda ns: ns.backends.mha.get_fastpath_enabled(),
    lambda ns: ns.accelerator.is_available(),
    lambda ns: ns.accelerator.device_count(),
    lambda ns: ns.accelerator.current_accelerator(),
    lambda ns: ns.mps.is_available(),
    lambda ns: ns.mps.device_count(),
    lambda ns: ns.cpu.is_available(),
    lambda ns: ns.cpu.device_count(),
    lambda ns: ns.cpu.current_device(),
    lambda ns: ns.cpu.synchronize(),
    lambda ns: ns.version.cuda,
    lambda ns: ns.version.hip,
    lambda ns: ns.ones(1).is_cuda,
    lambda ns: ns.ones(1).is_xpu,
    lambda ns: ns.ones(1).is_mps,
    lambda ns: ns.ones(1).name,
    lambda ns: ns.jit.is_scripting(),
    lambda ns: ns.jit.is_tracing(),
]


@pytest.mark.parametrize("question", range(len(QUESTIONS)))
def test_questions_are_answered_alike(question: int, torch: ModuleType) -> None:
    agree(QUESTIONS[question], torch)


@pytest.mark.parametrize(
    "call",
    [
        lambda ns: ns.cuda.current_device(),
        lambda ns: ns.cuda.init(),
        lambda ns: ns.cuda.get_device_name(),
        lambda ns: ns.cuda.get_device_name(0),
        lambda ns: ns.cuda.get_device_capability(),
        lambda ns: ns.cuda.get_device_properties(0),
        lambda ns: ns.cuda.mem_get_info(),
        lambda ns: ns.cuda.get_rng_state(),
        lambda ns: ns.cuda.initial_seed(),
        lambda ns: ns.cuda.current_stream(),
        lambda ns: ns.cuda.Stream(),
        lambda ns: ns.cuda.FloatTensor([1.0]),
        lambda ns: ns.cuda.BFloat16Tensor(2),
        lambda ns: ns.set_default_tensor_type(ns.cuda.BFloat16Tensor),
        lambda ns: ns.accelerator.current_device_index(),
        lambda ns: ns.accelerator.set_device_index(0),
        lambda ns: ns.accelerator.synchronize(),
        lambda ns: ns.accelerator.memory_allocated(),
    ],
)
def test_what_needs_a_device_is_refused_alike(call: Any, torch: ModuleType) -> None:
    refuse(call, torch)


def test_waiting_for_a_device_that_is_not_there_takes_no_time() -> None:
    evergrad.cuda.synchronize()
    evergrad.cuda.set_device(0)
    evergrad.cuda.reset_peak_memory_stats()
    evergrad.mps.synchronize()
    evergrad.mps.empty_cache()
    with evergrad.cuda.device(0), evergrad.cuda.stream(None):
        assert evergrad.ones(1).sum().item() == 1


def test_events_tell_the_time() -> None:
    start, end = (evergrad.cuda.Event(enable_timing=True) for _ in range(2))
    with pytest.raises(ValueError, match="recorded"):
        start.elapsed_time(end)
    start.record()
    time.sleep(0.002)
    end.record()
    end.synchronize()
    assert end.query() and 2 <= start.elapsed_time(end) < 1000
    with pytest.raises(ValueError, match="enable_timing"):
        start.elapsed_time(evergrad.cuda.Event())


def test_settings_of_compilers_that_are_not_there_are_remembered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert not evergrad._inductor.config.coordinate_descent_tuning
    monkeypatch.setattr(evergrad._dynamo.config, "suppress_errors", True)
    import evergrad._dynamo as dynamo

    assert dynamo.config.suppress_errors


def test_switches_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evergrad.backends.cudnn, "benchmark", True)
    import evergrad.backends.cudnn as cudnn

    assert cudnn.benchmark
    evergrad.backends.cuda.enable_flash_sdp(False)
    assert not evergrad.backends.cuda.flash_sdp_enabled()
    evergrad.backends.cuda.enable_flash_sdp(True)
    with (
        pytest.warns(FutureWarning, match="sdpa_kernel"),
        evergrad.backends.cuda.sdp_kernel(enable_math=False),
        evergrad.backends.cudnn.flags(enabled=False),
    ):
        pass


# -- compilers and exporters --------------------------------------------------------------------


def test_scripting_gives_the_thing_itself() -> None:
    module = evergrad.nn.Linear(1, 1)
    assert evergrad.jit.script(module) is module
    assert evergrad.jit.trace(module, evergrad.ones(1, 1)) is module
    assert evergrad.jit.ignore(test_scripting_gives_the_thing_itself) is not None

    @evergrad.jit.ignore(drop=True)
    def function() -> int:
        return 3

    assert function() == evergrad.jit.wait(evergrad.jit.fork(function)) == 3
    assert evergrad._dynamo.disable(function) is function
    module.compile(fullgraph=True)
    assert module(evergrad.ones(1, 1)).shape == (1, 1)


def test_what_cannot_be_written_is_refused(tmp_path: Any) -> None:
    target = tmp_path / "model.onnx"
    with pytest.raises(NotImplementedError, match="ONNX"):
        evergrad.onnx.export(evergrad.nn.Linear(1, 1), (evergrad.ones(1, 1),), target)
    with pytest.raises(NotImplementedError, match="state_dict"):
        evergrad.jit.save(evergrad.nn.Linear(1, 1), target)
    with pytest.raises(NotImplementedError, match="load_state_dict"):
        evergrad.jit.load(target)
    assert not target.exists()


# -- small things -------------------------------------------------------------------------------


def test_trees(torch: ModuleType) -> None:
    import torch.utils._pytree

    def program(ns: Any) -> Any:
        tree = ns.utils._pytree
        value = {"a": [1, (2.5, None)], "b": 3}
        leaves, spec = tree.tree_flatten(value)
        return (
            leaves,
            tree.tree_unflatten([leaf or 0 for leaf in leaves], spec),
            tree.tree_map(str, value),
            tree.tree_map_only(int, lambda n: n + 1, value),
            tree.tree_all(lambda leaf: leaf != 9, value),
            tree.tree_any_only(int, lambda leaf: leaf == 3, value),
            spec.num_leaves,
        )

    agree(program, torch)


def test_functions_at_the_top(torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        a, b = ns.linspace(0.1, 0.9, 6).reshape(2, 3), ns.linspace(0.8, 0.2, 6).reshape(2, 3)
        image = ns.linspace(0, 1, 16).reshape(1, 1, 4, 4)
        grid = ns.affine_grid_generator(ns.eye(2, 3)[None], (1, 1, 3, 3), False)
        sign = ns.tensor([1.0, -1.0])
        log_probs = ns.linspace(-2, -1, 12).reshape(4, 1, 3)
        return (
            [ns.kl_div(a.log(), b, reduction) for reduction in (0, 1, 2)],
            ns.kl_div(a.log(), b.log(), log_target=True),
            ns.binary_cross_entropy_with_logits(a, b, None, ns.ones(3), 2),
            ns.cosine_embedding_loss(a, b, sign, 0.1),
            ns.hinge_embedding_loss(a, sign[:, None]),
            ns.margin_ranking_loss(a[0], b[0], ns.ones(3), 0.1, 0),
            ns.triplet_margin_loss(a, b, a + 0.1),
            ns.poisson_nll_loss(a, b, True, False, 1e-8, 1),
            ns.ctc_loss(log_probs, ns.tensor([[1, 2]]), ns.tensor([4]), ns.tensor([2])),
            ns.adaptive_max_pool1d(a[None], 2),
            ns.max_pool1d_with_indices(a[None], 2, 1),
            ns.constant_pad_nd(a, (1, 0), 3.0),
            ns.convolution(
                image, image[..., :2, :2], None, [1, 1], [0, 0], [1, 1], False, [0, 0], 1
            ),
            ns.convolution(
                image, image[..., :2, :2], None, [2, 2], [0, 0], [1, 1], True, [1, 1], 1
            ),
            ns.instance_norm(image, None, None, None, None, True, 0.1, 1e-5, False),
            ns.norm_except_dim(a, 2, 1),
            ns.grid_sampler(image, grid, 0, 0, False),
            ns.feature_alpha_dropout(image, 0.5, False),
        )

    agree(program, torch, tolerance=1e-6)
    with pytest.raises(ValueError, match="reduction"):
        evergrad.kl_div(evergrad.ones(1), evergrad.ones(1), 7)


def test_functions_that_write_in_place(torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        x = ns.linspace(0.1, 0.9, 4)
        results = [getattr(ns, name)(x.clone()) for name in ("sigmoid_", "exp_", "neg_", "sqrt_")]
        y = x.clone()
        return [*results, ns.clamp_(y, 0.3, 0.5) is y, y, ns.zero_(x.clone())]

    agree(program, torch, tolerance=1e-6)


def test_a_module_without_starting_values(torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        ns.manual_seed(0)
        module = ns.nn.utils.skip_init(ns.nn.Linear, 2, 3)
        return tuple(module.weight.shape), ns.rand(2)  # nothing was drawn

    agree(program, torch)
    refuse(lambda ns: ns.nn.utils.skip_init(int), torch)
    refuse(lambda ns: ns.nn.utils.skip_init(ns.nn.ReLU), torch)


def test_default_types_can_be_set_by_their_old_names(torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ns.set_default_tensor_type("torch.DoubleTensor")
            made = ns.ones(1), ns.FloatTensor([1, 2]), ns.LongTensor(2, 1).shape
            ns.set_default_tensor_type(ns.FloatTensor)
        kinds = [str(t.dtype).rpartition(".")[2] for t in made[:2]]
        return kinds, tuple(made[2]), ns.ones(1).type(), isinstance(ns.ones(1), ns.FloatTensor)

    agree(program, torch)
    with pytest.raises(TypeError, match="computes on the CPU"):
        evergrad.ones(1).type(evergrad.cuda.FloatTensor)


def test_resize_warns(torch: ModuleType) -> None:
    for ns in (evergrad, torch):
        with pytest.warns(UserWarning, match="deprecated"):
            assert tuple(ns.arange(6).resize(2, 3).shape) == (2, 3)
