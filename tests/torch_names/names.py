"""The names of PyTorch that 388 public programs use, with the keywords seen in use.

One name a line: ``torch.cat: dim``. An attribute that is not called ends in ``(attr)``.
"""

NAMES = """\
torch.cat: dim
torch.no_grad
torch.tensor: device dtype requires_grad
torch.manual_seed
torch.arange: device dtype end requires_grad start step
torch.zeros: device dtype requires_grad
torch.long
torch.save
torch.ones: device dtype
torch.multinomial: generator num_samples
torch.stack: dim
torch.randn: device dtype requires_grad size
torch.load: map_location mmap weights_only
torch.device
torch.topk: dim k
torch.bfloat16
torch.randint: device dtype size
torch.float32
torch.tril
torch.tanh
torch.Generator: device
torch.pow
torch.Tensor
torch.triu: diagonal
torch.exp
torch.float16
torch.cos
torch.sin
torch.matmul
torch.gather: dim index input
torch.inference_mode
torch.max: dim
torch.randperm: generator
torch.from_numpy
torch.sum: axis dim
torch.int32
torch.where: condition input other
torch.LongTensor
torch.empty: device dtype size
torch.int64
torch.FloatTensor: device
torch.nonzero
torch.softmax: dim dtype
torch.int16
torch.autocast: device_type dtype
torch.roll
torch.uint8
torch.argmax: dim keepdim
torch.ones_like
torch.bool
torch.rsqrt
torch.sqrt
torch.full: device dtype
torch.finfo
torch.einsum
torch.zeros_like
torch.rand: device size
torch.sort: descending dim
torch.split: dim
torch.view_as_real
torch.cumsum: dim
torch.get_default_dtype
torch.outer
torch.isin
torch.polar
torch.set_default_tensor_type
torch.view_as_complex
torch.log
torch.inf
torch.meshgrid: indexing
torch.float
torch.randn_like
torch.pi
torch.set_grad_enabled
torch.linspace: device steps
torch.mm
torch.mean: axis dim dtype keepdim
torch.eye: device dtype
torch.as_tensor: device dtype
torch.flatten: start_dim
torch.sigmoid
torch.all
torch.var: dim keepdim unbiased
torch.diag
torch.normal: device mean requires_grad size std
torch.repeat_interleave: dim repeats
torch.allclose: atol rtol
torch.square
torch.unique: sorted
torch.double
torch.log1p
torch.spmm
torch.abs
torch.acos
torch.float64
torch.is_tensor
torch.bmm
torch.mv
torch.dot
torch.clamp: max min
torch.equal
torch.min
torch.norm
torch.erfinv
torch.fmod
torch.jagged
torch.set_printoptions: sci_mode
torch.chunk: axis dim
torch.argsort: descending dim
torch.floor
torch.unsqueeze: dim
torch.isnan
torch.bincount: minlength
torch.testing.assert_close: atol rtol
torch.bucketize
torch.trapezoid: dim
torch.unbind
torch.cosh
torch.det
torch.is_grad_enabled
torch.log2
torch.relu
torch.sign
torch.sinh
torch.squeeze: dim
torch.log_softmax: dim
Tensor.backward: gradient retain_graph
Tensor.item
Tensor.to: device dtype non_blocking
Tensor.shape (attr)
Tensor.view
Tensor.size
Tensor.device (attr)
Tensor.transpose
Tensor.mean: axis dim keepdim
Tensor.split: dim
Tensor.tolist
Tensor.contiguous
Tensor.unsqueeze: dim
Tensor.sum: axis dim keepdim keepdims
Tensor.numel
Tensor.data (attr)
Tensor.requires_grad (attr)
Tensor.masked_fill
Tensor.detach
Tensor.copy_
Tensor.dim
Tensor.grad (attr)
Tensor.t
Tensor.reshape: shape
Tensor.flatten
Tensor.relu
Tensor.type
Tensor.float
Tensor.squeeze: dim
Tensor.cpu
Tensor.clone
Tensor.type_as
Tensor.dtype (attr)
Tensor.expand
Tensor.numpy
Tensor.T (attr)
Tensor.fill_
Tensor.chunk: dim
Tensor.pow
Tensor.clamp: max min
Tensor.softmax: dim
Tensor.std: axis keepdim unbiased
Tensor.ndim (attr)
Tensor.repeat
Tensor.cuda: non_blocking
Tensor.requires_grad_
Tensor.double
Tensor.scatter_
Tensor.log
Tensor.argmin
Tensor.index_fill_
Tensor.masked_fill_
Tensor.div_
Tensor.name (attr)
Tensor.add
Tensor.min (attr)
Tensor.pin_memory
Tensor.mm
Tensor.argmax: axis dim keepdim
Tensor.zero_
Tensor.max: dim keepdim
Tensor.resize
Tensor.long
Tensor.sqrt
Tensor.eq
Tensor.add_: alpha
Tensor.mul_
Tensor.permute
Tensor.cos
Tensor.sin
Tensor.exp
Tensor.all
Tensor.flip
Tensor.nelement
Tensor.size (attr)
Tensor.repeat_interleave: dim
Tensor.bool
Tensor.values
Tensor.var: dim keepdim unbiased
Tensor.view_as
Tensor.topk: dim k
Tensor.uniform_
Tensor.sigmoid
Tensor.element_size
Tensor.abs
Tensor.to_sparse
Tensor.indices (attr)
Tensor.unbind: dim
Tensor.norm: dim keepdim
Tensor.max (attr)
Tensor.div
Tensor.type (attr)
Tensor.int
Tensor.is_cuda (attr)
Tensor.mul
Tensor.new_zeros
Tensor.values (attr)
Tensor.norm (attr)
Tensor.clamp_
Tensor.dim (attr)
Tensor.bernoulli_
Tensor.bmm
Tensor.expand_as
Tensor.is_xpu (attr)
Tensor.mT (attr)
Tensor.new_tensor
Tensor.any: dim
Tensor.cumsum: axis dim
Tensor.index_add_
Tensor.index_select
Tensor.nonzero: as_tuple
Tensor.argsort: dim
Tensor.gather
Tensor.data_ptr
Tensor.sort
Tensor.dot
Tensor.unflatten
Tensor.tanh
Tensor.dist (attr)
Tensor.normal_
Tensor.scatter
Tensor.unique: return_counts return_inverse
Tensor.matmul
Tensor.logical_not
Tensor.amax
Tensor.lerp
Tensor.rsqrt
Tensor.square
Tensor.sub
Tensor.triu
Tensor.unfold
Tensor.data
Tensor.long (attr)
Tensor.maximum
Tensor.mean (attr)
Tensor.prod: dim
Tensor.sub_
Tensor.swapaxes
Tensor.bfloat16
Tensor.tril
torch.nn.Module
torch.nn.Linear: bias dtype in_features out_features
torch.nn.Embedding: dtype embedding_dim num_embeddings padding_idx
torch.nn.ModuleList
torch.nn.Sequential
torch.nn.Parameter: requires_grad
torch.nn.LayerNorm: bias elementwise_affine eps
torch.nn.ModuleDict
torch.nn.Dropout: p
torch.nn.GELU: approximate
torch.nn.ReLU: inplace
torch.nn.Conv2d: bias groups in_channels kernel_size out_channels padding stride
torch.nn.BatchNorm2d
torch.nn.Tanh
torch.nn.KLDivLoss: reduction
torch.nn.MSELoss: reduction
torch.nn.CrossEntropyLoss: ignore_index reduction
torch.nn.Identity
torch.nn.Softmax: dim
torch.nn.LSTM: batch_first bidirectional hidden_size input_size num_layers
torch.nn.SiLU
torch.nn.LazyLinear: bias
torch.nn.MaxPool2d: kernel_size padding stride
torch.nn.Sigmoid
torch.nn.AvgPool2d: kernel_size padding stride
torch.nn.LeakyReLU: inplace
torch.nn.NLLLoss
torch.nn.BCELoss
torch.nn.Flatten: start_dim
torch.nn.LazyConv2d: bias groups kernel_size padding stride
torch.nn.GRU: bidirectional dropout
torch.nn.BatchNorm1d: momentum
torch.nn.AdaptiveAvgPool2d
torch.nn.Dropout2d
torch.nn.Transformer: d_model dim_feedforward dropout nhead num_decoder_layers num_encoder_layers
torch.nn.ConvTranspose2d: bias in_channels kernel_size out_channels padding stride
torch.nn.RNN: dropout nonlinearity
torch.nn.MultiheadAttention: add_bias_kv batch_first bias dropout embed_dim num_heads
torch.nn.InstanceNorm2d: affine
torch.nn.LSTMCell
torch.nn.PixelShuffle
torch.nn.ReflectionPad2d
torch.nn.TransformerEncoder
torch.nn.TransformerEncoderLayer
torch.nn.modules.linear.NonDynamicallyQuantizableLinear
torch.nn.RMSNorm: dtype eps
torch.nn.LazyBatchNorm2d
torch.nn.ParameterList
torch.nn.Conv1d: bias groups in_channels kernel_size out_channels padding
torch.nn.Hardswish
torch.nn.Unfold: kernel_size padding stride
torch.nn.attention.SDPBackend
torch.nn.attention.sdpa_kernel
torch.nn.BCEWithLogitsLoss: reduction
torch.nn.LazyBatchNorm1d
torch.nn.Conv3d: bias kernel_size padding stride
torch.nn.MaxPool3d: kernel_size padding stride
torch.nn.AdaptiveAvgPool1d
torch.nn.AdaptiveMaxPool2d
torch.nn.L1Loss: reduction
torch.nn.attention.flex_attention.create_block_mask: B H KV_LEN Q_LEN device
torch.nn.attention.flex_attention.flex_attention: block_mask
torch.nn.functional.cross_entropy: ignore_index reduction
torch.nn.functional.softmax: dim
torch.nn.functional.scaled_dot_product_attention: attn_mask dropout_p is_causal scale
torch.nn.functional.pad: mode value
torch.nn.functional.log_softmax: dim
torch.nn.functional.relu
torch.nn.functional.sigmoid
torch.nn.functional.tanh
torch.nn.functional.silu
torch.nn.functional.avg_pool2d: input kernel_size stride
torch.nn.functional.layer_norm
torch.nn.functional.max_pool2d: kernel_size padding stride
torch.nn.functional.dropout: p training
torch.nn.functional.nll_loss: reduction
torch.nn.functional.normalize: dim eps p
torch.nn.functional.binary_cross_entropy: reduction size_average
torch.nn.functional.adaptive_avg_pool2d
torch.nn.functional.smooth_l1_loss
torch.nn.functional.gelu: approximate
torch.nn.functional.interpolate: mode scale_factor
torch.nn.functional.l1_loss
torch.nn.functional.elu
torch.nn.functional.one_hot
torch.nn.functional.mse_loss
torch.nn.functional.conv2d: bias groups input padding weight
torch.nn.functional.softplus
torch.nn.functional.kl_div: reduction
torch.nn.functional.binary_cross_entropy_with_logits: reduction weight
torch.nn.functional.conv1d: groups padding
torch.nn.functional.linear
torch.nn.functional.logsigmoid
torch.nn.init.normal_: generator mean std
torch.nn.init.zeros_
torch.nn.init.xavier_uniform_
torch.nn.init.constant_
torch.nn.init.ones_
torch.nn.init.xavier_normal_
torch.nn.init.uniform_
torch.nn.init.orthogonal_
torch.nn.init.calculate_gain
torch.nn.init.constant
torch.nn.init.kaiming_normal: mode
torch.nn.init.normal: std
torch.nn.init.kaiming_uniform_: a
torch.nn.init.kaiming_normal_
torch.nn.init.trunc_normal_: std
torch.nn.init._calculate_fan_in_and_fan_out
torch.nn.utils.clip_grad_norm_: max_norm
torch.nn.utils.rnn.pack_padded_sequence: batch_first
torch.nn.utils.rnn.pad_sequence: batch_first padding_value
torch.nn.utils.parametrize.register_parametrization
torch.optim.AdamW: betas eps fused lr weight_decay
torch.optim.Adam: betas eps lr weight_decay
torch.optim.Optimizer
torch.optim.lr_scheduler.LambdaLR: lr_lambda optimizer
torch.optim.SGD: lr momentum weight_decay
torch.optim.lr_scheduler.StepLR: gamma step_size
torch.optim.Adadelta: lr
torch.optim.LBFGS: lr
torch.optim.lr_scheduler.CosineAnnealingLR: T_max
torch.optim.Adagrad
torch.optim.RMSprop
torch.optim.lr_scheduler.MultiStepLR: gamma milestones
torch.optim.lr_scheduler.__name__
torch.utils.data.DataLoader: batch_size collate_fn dataset drop_last num_workers
torch.utils.data.DataLoader: pin_memory sampler shuffle
torch.utils.data.Dataset
torch.utils.data.distributed.DistributedSampler: drop_last num_replicas rank seed shuffle
torch.utils.data.RandomSampler: num_samples replacement
torch.utils.data.Subset
torch.utils.data.TensorDataset
torch.utils._pytree.tree_flatten
torch.utils._pytree.tree_unflatten
torch.autograd.Function
torch.autograd.grad: retain_graph
torch.linalg.eig
torch.distributions.Normal
torch.distributions.Categorical
torch.distributions.binomial.Binomial
torch.distributions.multinomial.Multinomial
torch.distributions.poisson.Poisson
torch.fft.fft2
torch.sparse_coo_tensor: dtype
torch.nested.nested_tensor: device layout
torch.cuda.is_available
torch.distributed.init_process_group
torch.nn.parallel.DistributedDataParallel
torch.cuda.synchronize
torch.cuda.set_device
torch.compile
torch.distributed.destroy_process_group
torch.cuda.manual_seed
torch.distributed.ReduceOp
torch.distributed.all_reduce
torch.backends.mps.is_available
torch.set_float32_matmul_precision
torch.amp.autocast
torch.cuda.device_count
torch.backends.cuda.matmul
torch.backends.cudnn.allow_tf32
torch.cuda.manual_seed_all
torch.cuda.max_memory_allocated
torch.cuda.reset_peak_memory_stats
torch.multiprocessing.spawn
torch.cuda.empty_cache
torch._inductor.config.coordinate_descent_tuning
torch.distributed.optim.ZeroRedundancyOptimizer
torch.mps.synchronize
torch.version.__version__
torch.utils.tensorboard.SummaryWriter
torch.cuda.is_bf16_supported
torch.accelerator.current_accelerator
torch.accelerator.is_available
torch.distributed.get_world_size
torch.cuda.BFloat16Tensor
torch.distributed.get_rank
torch.distributed.barrier
torch.cuda.amp.GradScaler
torch.distributed.all_gather
torch.profiler.ProfilerActivity
torch.profiler.profile
torch.profiler.schedule
torch.profiler.tensorboard_trace_handler
torch.__version__
torch.nn.DataParallel
torch.backends.cudnn.benchmark
torch.accelerator.device_count
torch.accelerator.set_device_index
torch.backends.cudnn.deterministic
torch.distributed.get_backend
torch.distributed.get_default_backend_for_device
torch.multiprocessing.Process
torch.multiprocessing.set_start_method
torch.nn.parallel.data_parallel
torch.onnx.export
torch.serialization.safe_globals
torch.cuda.memory_allocated
torch.cuda.Event
torch.cuda.current_device
torch.backends.cuda.sdp_kernel
torch.cuda.memory_reserved
torch.version.cuda
torch.nn.parallel.scatter
torch.cuda.get_device_capability
torch.cuda.get_device_properties
torch.jit.script
torch._dynamo.config.suppress_errors
torch.cuda.get_device_name
torch.distributed.is_initialized
"""

# Methods and attributes of modules and optimizers.
MODULE_OR_OPTIMIZER = """\
parameters
zero_grad
step
eval
train
state_dict
register_buffer
load_state_dict
param_groups
apply
named_parameters
forward
named_modules
children
add_module
buffers
register_forward_hook
modules
share_memory
named_children
register_parameter
to_empty
add_param_group
state
"""
