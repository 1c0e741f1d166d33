"""Private and old names of PyTorch that packages read, and where evergrad has what they mean."""

# "torch.<module>.<name>": "<module of evergrad>:<name>"
HOMES = {
    "torch.matrix_rank": "evergrad.removed:matrix_rank",
    "torch.solve": "evergrad.removed:solve",
    "torch.lstsq": "evergrad.removed:lstsq",
    "torch.eig": "evergrad.removed:eig",
    "torch.symeig": "evergrad.removed:symeig",
    "torch.conv_tbc": "evergrad.as_torch.rare_functions:conv_tbc",
    "torch.nn.functional.conv_tbc": "evergrad.as_torch.rare_functions:conv_tbc",
    "torch.fake_quantize_per_tensor_affine":
        "evergrad.as_torch.rare_functions:fake_quantize_per_tensor_affine",
    "torch.fake_quantize_per_channel_affine":
        "evergrad.as_torch.rare_functions:fake_quantize_per_channel_affine",
    "torch.set_anomaly_enabled": "evergrad.as_torch.rare_functions:set_anomaly_enabled",
    "torch.is_distributed": "evergrad.as_torch.rare_functions:is_distributed",
    "torch.cuda._is_in_bad_fork": "evergrad.as_torch.definitions:no",
    "torch.cuda._is_compiled": "evergrad.as_torch.definitions:no",
    "torch.cuda._lazy_init": "evergrad.as_torch.rare_functions:without_cuda",
    "torch.cuda._lazy_call": "evergrad.as_torch.rare_functions:call_later",
    "torch.mps._is_in_bad_fork": "evergrad.as_torch.definitions:no",
    "torch.xpu._is_in_bad_fork": "evergrad.as_torch.definitions:no",
    "torch.mtia._is_in_bad_fork": "evergrad.as_torch.definitions:no",
    "torch.cpu.Stream": "evergrad.as_torch.rare_functions:Stream",
    "torch.cpu.current_stream": "evergrad.as_torch.rare_functions:current_cpu_stream",
    "torch.cpu.stream": "evergrad.as_torch.rare_functions:cpu_stream",
    "torch.nn.functional.GRID_SAMPLE_PADDING_MODES":
        "evergrad.as_torch.rare_functions:PADDING_MODES",
    "torch.nn.functional.GRID_SAMPLE_INTERPOLATION_MODES":
        "evergrad.as_torch.rare_functions:INTERPOLATION_MODES",
    "torch.nn.functional.has_torch_function": "evergrad.overrides:has_torch_function",
    "torch.nn.functional.handle_torch_function": "evergrad.overrides:handle_torch_function",
    "torch.nn.functional.native_channel_shuffle": "evergrad.nn.functional:channel_shuffle",
    "torch.autograd.is_multithreading_enabled": "evergrad.as_torch.rare_functions:yes",
    "torch.autograd.is_view_replay_enabled": "evergrad.as_torch.definitions:no",
    "torch.autograd.kineto_available": "evergrad.as_torch.definitions:no",
    "torch.distributions.utils.euler_constant": "evergrad.distributions.utils:EULER_CONSTANT",
    "torch.distributions.transforms.broadcast_all": "evergrad.distributions.utils:broadcast_all",
    "torch.legacy_contiguous_format": "evergrad.core.memory_format:contiguous_format",
    "torch._standard_gamma": "evergrad.ops.rows.random.draws:standard_gamma",
    "torch._sample_dirichlet": "evergrad.ops.rows.random.gamma:sample_dirichlet",
    "torch._int_mm": "evergrad.as_torch.definitions:int_mm",
    "torch._grouped_mm": "evergrad.as_torch.definitions:grouped_mm",
    "torch._VF": "evergrad.as_torch.definitions:VF",
    "torch.get_autocast_cpu_dtype": "evergrad.as_torch.definitions:get_autocast_cpu_dtype",
    "torch.get_autocast_gpu_dtype": "evergrad.as_torch.definitions:get_autocast_gpu_dtype",
    "torch.is_autocast_cpu_enabled": "evergrad.as_torch.definitions:is_autocast_cpu_enabled",
    "torch.set_autocast_cpu_enabled": "evergrad.as_torch.definitions:set_autocast_cpu_enabled",
    "torch.set_autocast_cpu_dtype": "evergrad.as_torch.definitions:set_autocast_cpu_dtype",
    "torch.set_autocast_gpu_dtype": "evergrad.as_torch.definitions:set_autocast_gpu_dtype",
    "torch.autograd._disable_profiler": "evergrad.as_torch.definitions:nothing",
    "torch.autograd._profiler_enabled": "evergrad.as_torch.definitions:no",
    "torch.autograd.profiler.EventList": "evergrad.as_torch.definitions:EventList",
    "torch.autograd.profiler.emit_nvtx": "evergrad.as_torch.definitions:NoContext",
    "torch.backends.mps.is_macos_or_newer": "evergrad.as_torch.definitions:no",
    "torch.backends.fp32_precision": "evergrad.as_torch.definitions:FP32_PRECISION",
    "torch.cuda.default_generators": "evergrad.as_torch.definitions:NO_GENERATORS",
    "torch.cuda.random.get_rng_state": "evergrad.cuda:get_rng_state",
    "torch.cuda.random.get_rng_state_all": "evergrad.cuda:get_rng_state_all",
    "torch.cuda.random.set_rng_state_all": "evergrad.cuda:set_rng_state_all",
    "torch.distributed.constants.default_pg_timeout": "evergrad.as_torch.definitions:TIMEOUT",
    "torch.distributed.distributed_c10d._pg_map": "evergrad.as_torch.definitions:NO_GROUPS",
    "torch.distributed.distributed_c10d.ProcessGroup": "evergrad.distributed:ProcessGroup",
    "torch.distributed.distributed_c10d.ReduceOp": "evergrad.distributed:ReduceOp",
    "torch.distributed.distributed_c10d.is_initialized": "evergrad.distributed:is_initialized",
    "torch.distributed.rpc.api._require_initialized": "evergrad.as_torch.definitions:same",
    "torch.distributed.tensor.Placement": "evergrad.as_torch.definitions:Placement",
    "torch.distributed.tensor.Partial": "evergrad.as_torch.definitions:Partial",
    "torch.distributed.tensor.Replicate": "evergrad.as_torch.definitions:Replicate",
    "torch.distributed.tensor.Shard": "evergrad.as_torch.definitions:Shard",
    "torch.distributed.tensor.placement_types.Placement":
        "evergrad.as_torch.definitions:Placement",
    "torch.distributed.tensor.placement_types.Partial": "evergrad.as_torch.definitions:Partial",
    "torch.distributed.tensor.placement_types.Replicate":
        "evergrad.as_torch.definitions:Replicate",
    "torch.distributed.tensor.placement_types.Shard": "evergrad.as_torch.definitions:Shard",
    "torch.distributed.tensor.DeviceMesh": "evergrad.distributed:DeviceMesh",
    "torch.distributed.tensor.init_device_mesh": "evergrad.distributed:init_device_mesh",
    "torch.distributed.rpc.api.UNSET_RPC_TIMEOUT": "evergrad.as_torch.definitions:UNSET_TIMEOUT",
    "torch.distributions.transforms._InverseTransform":
        "evergrad.distributions.transform_base:_InverseTransform",
    "torch.distributions.utils._standard_normal": "evergrad.as_torch.definitions:standard_normal",
    "torch.distributions.utils._sum_rightmost": "evergrad.as_torch.definitions:sum_rightmost",
    "functorch.make_functional": "evergrad.as_torch.definitions:make_functional",
    "functorch.make_functional_with_buffers":
        "evergrad.as_torch.definitions:make_functional_with_buffers",
    "torch.jit.Error": "evergrad.as_torch.definitions:ScriptError",
    "torch.jit.isinstance": "evergrad.as_torch.definitions:is_instance",
    "torch.jit.annotations.List": "typing:List",
    "torch.jit.annotations.Optional": "typing:Optional",
    "torch.jit.annotations.Tuple": "typing:Tuple",
    "torch.jit.annotations.Dict": "typing:Dict",
    "torch.jit._overload": "evergrad._jit_internal:_overload",
    "torch.jit._overload_method": "evergrad._jit_internal:_overload_method",
    "torch.nn.attention.flex_attention._DEFAULT_SPARSE_BLOCK_SIZE":
        "evergrad.as_torch.definitions:SPARSE_BLOCK_SIZE",
    "torch.nn.functional.grouped_mm": "evergrad.as_torch.definitions:grouped_mm",
    "torch.nn.functional._in_projection_packed":
        "evergrad.as_torch.definitions:in_projection_packed",
    "torch.nn.init._no_grad_uniform_": "evergrad.nn.init:uniform_",
    "torch.nn.init._no_grad_normal_": "evergrad.nn.init:normal_",
    "torch.nn.init._no_grad_trunc_normal_": "evergrad.nn.init:trunc_normal_",
    "torch.nn.modules.module._EXTRA_STATE_KEY_SUFFIX":
        "evergrad.as_torch.definitions:EXTRA_STATE_KEY_SUFFIX",
    "torch.nn.modules.module._IncompatibleKeys": "evergrad.nn.state:_IncompatibleKeys",
    "torch.nn.modules.transformer._get_activation_fn":
        "evergrad.as_torch.definitions:get_activation_fn",
    "torch.nn.modules.transformer._get_clones": "evergrad.as_torch.definitions:get_clones",
    "torch.optim.optimizer.ParamsT": "evergrad.as_torch.definitions:ParamsT",
    "torch.optim.optimizer._params_t": "evergrad.as_torch.definitions:ParamsT",
    "torch.optim.optimizer._use_grad_for_differentiable":
        "evergrad.as_torch.definitions:use_grad_for_differentiable",
    "torch.optim.optimizer._default_to_fused_or_foreach":
        "evergrad.as_torch.definitions:default_to_fused_or_foreach",
    "torch.optim.optimizer._get_value": "evergrad.as_torch.definitions:get_value",
    "torch.optim.optimizer._dispatch_sqrt": "evergrad.as_torch.definitions:dispatch_sqrt",
    "torch.optim.optimizer._get_capturable_supported_devices":
        "evergrad.as_torch.definitions:empty_list",
    "torch.profiler.kineto_available": "evergrad.as_torch.definitions:no",
    "torch.profiler.profiler._default_schedule_fn": "evergrad.as_torch.definitions:nothing",
    "torch.serialization.MAP_LOCATION": "evergrad.as_torch.definitions:MapLocation",
    "torch.serialization.FILE_LIKE": "evergrad.types:FileLike",
    "torch.serialization.normalize_storage_type":
        "evergrad.as_torch.definitions:same",
    "torch.sparse.FloatTensor": "evergrad.as_torch.definitions:SparseFloatTensor",
    "torch.sparse.DoubleTensor": "evergrad.as_torch.definitions:SparseDoubleTensor",
    "torch.sparse.HalfTensor": "evergrad.as_torch.definitions:SparseHalfTensor",
    "torch.sparse.LongTensor": "evergrad.as_torch.definitions:SparseLongTensor",
    "torch.utils.model_zoo.load_url": "evergrad.hub:load_state_dict_from_url",
    "torch.utils.swap_tensors": "evergrad.as_torch.definitions:swap_tensors",
    "torch.utils._pytree.Context": "evergrad.as_torch.definitions:Anything",
    "torch.utils._pytree.LeafSpec": "evergrad.as_torch.definitions:LeafSpec",
    "torch.utils._pytree.SUPPORTED_NODES": "evergrad.as_torch.definitions:SUPPORTED_NODES",
    "torch.utils._pytree._dict_flatten": "evergrad.as_torch.definitions:dict_flatten",
    "torch.utils._pytree._dict_unflatten": "evergrad.as_torch.definitions:dict_unflatten",
    "torch.utils._pytree._dict_flatten_with_keys":
        "evergrad.as_torch.definitions:dict_flatten_with_keys",
    "torch.utils._pytree._get_node_type": "evergrad.as_torch.definitions:node_type",
    "torch.utils._pytree._register_pytree_node":
        "evergrad.as_torch.definitions:register_pytree_node",
    "torch.utils.data.IterDataPipe": "evergrad.utils.data:IterableDataset",
    "torch.utils.data.MapDataPipe": "evergrad.utils.data:Dataset",
    "torch.utils.data.functional_datapipe": "evergrad.as_torch.definitions:decorator",
    "torch.utils.data.dataloader._BaseDataLoaderIter":
        "evergrad.utils.data._utils.iterators:BaseIterator",
    "torch.utils.data.dataloader._SingleProcessDataLoaderIter":
        "evergrad.as_torch.definitions:SingleProcessLoaderIterator",
    "torch.utils.data.dataloader._MultiProcessingDataLoaderIter":
        "evergrad.utils.data._utils.iterators:MultiProcessIterator",
    "torch.utils.data.dataloader._DatasetKind": "evergrad.as_torch.definitions:DatasetKind",
    "torch.utils.data.dataloader._collate_fn_t": "evergrad.as_torch.definitions:Anything",
    "torch.utils.data._utils.collate.np_str_obj_array_pattern":
        "evergrad.as_torch.definitions:STRING_TYPES",
    "torch._tensor_str.PRINT_OPTS": "evergrad.as_torch.definitions:PRINT_OPTS",
    "torch._tensor_str._tensor_str": "evergrad.as_torch.definitions:tensor_str",
    "torch._tensor_str._add_suffixes": "evergrad.as_torch.definitions:add_suffixes",
    "torch._tensor_str._str_intern": "evergrad.as_torch.definitions:str_intern",
    "torch._inductor.cudagraph_mark_step_begin": "evergrad.as_torch.definitions:nothing",
    "torch._inductor.list_mode_options": "evergrad.as_torch.definitions:empty_dict",
    "torch._prims_common.is_contiguous_or_false": "evergrad.as_torch.definitions:is_contiguous",
    "torch.mps.recommended_max_memory": "evergrad.as_torch.definitions:zero",
    "torch.accelerator.get_memory_info": "evergrad.as_torch.definitions:memory_info",
    "torch.qint8": "evergrad.as_torch.further_definitions:qint8",
    "torch.quint8": "evergrad.as_torch.further_definitions:quint8",
    "torch.qint32": "evergrad.as_torch.further_definitions:qint32",
    "torch.quint4x2": "evergrad.as_torch.further_definitions:quint4x2",
    "torch.quint2x4": "evergrad.as_torch.further_definitions:quint2x4",
    "torch.nn.parameter.UninitializedTensorMixin":
        "evergrad.as_torch.further_definitions:UninitializedTensorMixin",
    "torch.utils.checkpoint.get_device_states":
        "evergrad.as_torch.further_definitions:get_device_states",
    "torch.utils.checkpoint.set_device_states":
        "evergrad.as_torch.further_definitions:set_device_states",
    "torch.utils.checkpoint.detach_variable":
        "evergrad.as_torch.further_definitions:detach_variable",
    "torch.utils.checkpoint.check_backward_validity": "evergrad.as_torch.definitions:nothing",
    "torch.utils.weak.WeakIdKeyDictionary":
        "evergrad.as_torch.further_definitions:WeakIdKeyDictionary",
    "torch.utils.weak.WeakTensorKeyDictionary":
        "evergrad.as_torch.further_definitions:WeakIdKeyDictionary",
    "torch.utils._contextlib._DecoratorContextManager":
        "evergrad.as_torch.further_definitions:DecoratorContextManager",
    "torch.utils._contextlib._NoParamDecoratorContextManager":
        "evergrad.as_torch.further_definitions:NoParamDecoratorContextManager",
    "torch.autograd.grad_mode._DecoratorContextManager":
        "evergrad.as_torch.further_definitions:DecoratorContextManager",
    "torch.autograd.grad_mode._NoParamDecoratorContextManager":
        "evergrad.as_torch.further_definitions:NoParamDecoratorContextManager",
    "torch._disable_dynamo": "evergrad.as_torch.further_definitions:disable_dynamo",
    "torch._compile._disable_dynamo": "evergrad.as_torch.further_definitions:disable_dynamo",
    "torch.distributions.transforms._clipped_sigmoid":
        "evergrad.as_torch.further_definitions:clipped_sigmoid",
    "torch.distributions.multivariate_normal._precision_to_scale_tril":
        "evergrad.as_torch.further_definitions:precision_to_scale_tril",
    "torch.distributions.multivariate_normal._batch_mahalanobis":
        "evergrad.as_torch.further_definitions:batch_mahalanobis",
    "torch.distributions.multivariate_normal._batch_mv":
        "evergrad.as_torch.further_definitions:batch_mv",
    "torch.utils.tensorboard.writer.SummaryWriter": "evergrad.utils.tensorboard:SummaryWriter",
    "torch.utils._foreach_utils._get_foreach_kernels_supported_devices":
        "evergrad.as_torch.further_definitions:no_foreach_devices",
    "torch.utils._foreach_utils._get_fused_kernels_supported_devices":
        "evergrad.as_torch.further_definitions:no_foreach_devices",
    "torch.utils._foreach_utils._group_tensors_by_device_and_dtype":
        "evergrad.as_torch.further_definitions:group_tensors_by_device_and_dtype",
    "torch.utils._foreach_utils._foreach_supported_types":
        "evergrad.as_torch.further_definitions:FOREACH_TYPES",
    "torch.utils._foreach_utils.TensorListList":
        "evergrad.as_torch.further_definitions:TensorLists",
    "torch.utils._foreach_utils.Indices": "evergrad.as_torch.further_definitions:Indices",
    "torch.utils._foreach_utils._has_foreach_support": "evergrad.as_torch.definitions:no",
    "torch.utils._foreach_utils._device_has_foreach_support": "evergrad.as_torch.definitions:no",
    "torch._higher_order_ops.cond": "evergrad.func.control_flow:cond",
    "torch._higher_order_ops.while_loop": "evergrad.func.control_flow:while_loop",
    "torch._higher_order_ops.map": "evergrad.func.control_flow:map",
    "torch._higher_order_ops.scan": "evergrad.func.control_flow:scan",
    "torch._higher_order_ops.associative_scan": "evergrad.func.control_flow:associative_scan",
    "torch._higher_order_ops.cond.cond": "evergrad.func.control_flow:cond",
    "torch._higher_order_ops.while_loop.while_loop": "evergrad.func.control_flow:while_loop",
    "torch._higher_order_ops.map.map": "evergrad.func.control_flow:map",
    "torch._higher_order_ops.scan.scan": "evergrad.func.control_flow:scan",
    "torch._higher_order_ops.associative_scan.associative_scan":
        "evergrad.func.control_flow:associative_scan",
    "torch.onnx.symbolic_helper.parse_args": "evergrad.as_torch.definitions:decorator",
    "torch.onnx.register_custom_op_symbolic": "evergrad.as_torch.definitions:nothing",
    "torch.optim.lbfgs._strong_wolfe": "evergrad.as_torch.rare_functions:strong_wolfe",
    "torch.optim.lbfgs._cubic_interpolate":
        "evergrad.as_torch.rare_functions:cubic_interpolate",
    "torch._vmap_internals._vmap": "evergrad.func:vmap",
    "torch._vmap_internals.vmap": "evergrad.func:vmap",
    "torch.jit._state._enabled": "evergrad.as_torch.further_definitions:SCRIPTING",
    "torch.jit._state._script_classes": "evergrad.as_torch.further_definitions:SCRIPTED_CLASSES",
    "torch.jit._state._name_to_pyclass": "evergrad.as_torch.further_definitions:SCRIPTED_CLASSES",
    "torch.jit._script_if_tracing": "evergrad.as_torch.definitions:same",
    "torchvision.utils._make_ntuple": "evergrad.as_torch.further_definitions:make_ntuple",
    **{
        f"torch.masked.{path}{name}": f"evergrad.masked_tensor:{name}"
        for path in ("", "maskedtensor.", "maskedtensor.core.", "maskedtensor.creation.")
        for name in ("MaskedTensor", "as_masked_tensor", "is_masked_tensor", "masked_tensor")
    },
    "torch._dynamo.utils.is_compile_supported": "evergrad.as_torch.definitions:no",
    "torch._dynamo.utils.disable_cache_limit": "evergrad.as_torch.definitions:NoContext",
    "torch.jit.annotations.BroadcastingList1": "typing:List",
    "torch.jit.annotations.BroadcastingList2": "typing:List",
    "torch.jit.annotations.BroadcastingList3": "typing:List",
    "torch.jit.annotations.BroadcastingList4": "typing:List",
    "torch.jit.annotations.BroadcastingList5": "typing:List",
    "torch.jit.annotations.BroadcastingList6": "typing:List",
    "torchvision.utils._log_api_usage_once": "evergrad.as_torch.definitions:nothing",
    "torch.cuda.nvtx.range": "evergrad.as_torch.definitions:NoContext",
    "torch.cuda.nvtx.range_push": "evergrad.as_torch.definitions:zero",
    "torch.cuda.nvtx.range_pop": "evergrad.as_torch.definitions:zero",
    "torch.cuda.nvtx.mark": "evergrad.as_torch.definitions:nothing",
}  # fmt: skip

# Modules whose name evergrad uses for something else, or which are another one.
RENAMED = {
    "torch.classes": "evergrad._classes",
    "torch.functional": "torch",
    "torch.serialization.pickle": "pickle",
    "torch.ops": "evergrad._operators",
}
