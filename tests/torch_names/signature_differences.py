"""Where a signature is not what PyTorch's stubs state, with the reason."""

_UNREDUCED = "the stub says 1; PyTorch itself takes 0, and gives an unreduced loss"
_VALID = "0 is no padding, and so is 'valid'"
_STRIDE = "None is the size of the window, and so is ()"
_REFUSED = "PyTorch itself refuses what the stub states"
_CUDA = "PyTorch has this overload for CUDA only"
_REFUSED_FORM = "the deprecated form with factors before the tensors"
_GIVEN = "None tells that it was not given; correction excludes it"
_POSITIONAL = "an operator, which nobody calls by keyword"

# "<namespace>.<name>" of functions whose overloads are not compared.
DIFFERENT = {
    "torch.avg_pool1d": _STRIDE,
    "torch.max_pool1d": _STRIDE,
    "torch.max_pool2d": _STRIDE,
    "torch.max_pool3d": _STRIDE,
    "torch.binary_cross_entropy_with_logits": _UNREDUCED,
    "torch.cosine_embedding_loss": _UNREDUCED,
    "torch.ctc_loss": _UNREDUCED,
    "torch.hinge_embedding_loss": _UNREDUCED,
    "torch.kl_div": _UNREDUCED,
    "torch.margin_ranking_loss": _UNREDUCED,
    "torch.triplet_margin_loss": _UNREDUCED,
    "torch.conv1d": _VALID,
    "torch.conv2d": _VALID,
    "torch.conv3d": _VALID,
    "torch.addmm": _CUDA,
    "torch.baddbmm": _CUDA,
    "torch.sspaddmm": _REFUSED_FORM,
    "torch.bmm": _CUDA,
    "torch.mm": _CUDA,
    "torch.full": _REFUSED,
    "torch.linspace": _REFUSED,
    "torch.logspace": _REFUSED,
    "torch.set_num_interop_threads": _REFUSED,
    "torch.set_num_threads": _REFUSED,
    "torch.tensor": _REFUSED,
    "torch.roll": "None is no dimension, and so is ()",
    "torch.result_type": "one form for the four of tensors and numbers",
    "torch.std": _GIVEN,
    "torch.std_mean": _GIVEN,
    "torch.var": _GIVEN,
    "torch.var_mean": _GIVEN,
    "Tensor.__contains__": _POSITIONAL,
    "Tensor.__getitem__": _POSITIONAL,
    "Tensor.__setitem__": _POSITIONAL,
    "Tensor.add": _REFUSED,
    "Tensor.floor_divide": _REFUSED,
    "Tensor.mul": _REFUSED,
    "Tensor.new_tensor": _REFUSED,
    "Tensor.requires_grad_": _REFUSED,
    "Tensor.sub": _REFUSED,
    "Tensor.true_divide": _REFUSED,
    "Tensor.roll": "None is no dimension, and so is ()",
    "Tensor.std": _GIVEN,
    "Tensor.var": _GIVEN,
    "Tensor.size": "axis= would slow down a method that every program calls",
    "Tensor.stride": "axis= would slow down a method that every program calls",
    "linalg.matrix_exp": _REFUSED,
    "fft.fftfreq": "pin_memory is False, and None is the same",
    "fft.rfftfreq": "pin_memory is False, and None is the same",
}
