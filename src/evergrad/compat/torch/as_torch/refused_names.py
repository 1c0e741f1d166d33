"""Names of PyTorch that packages import and evergrad has no meaning for: they refuse when used.

A module on a line of its own; below it its classes, functions and enumerations with their members.
"""

NAMES = """\
functorch
  class FunctionalModule FunctionalModuleWithBuffers
torch._C._distributed_c10d
  class AllgatherOptions Backend BuiltinCommHookType DDPLoggingData ErrorType FakeProcessGroup
    FakeWork FileStore GradBucket HashStore Logger OpType PythonCallbackWork Reducer TCPStore
    WorkInfo WorkResult
  def set_debug_level set_debug_level_from_env
torch._dynamo._trace_wrapped_higher_order_op
  class TransformGetItemToIndex
  def trace_wrapped
torch._dynamo.eval_frame
  class DisableContext DynamoStance DynamoTLS ExportResult FlattenInputOutputSignature
    OptimizeContext OptimizedModule RunOnlyContext TorchPatcher
  def add_skip_reason always_false argument_names check_for_incompatible_configs
    check_if_dynamo_supported check_if_inductor_supported check_signature_rewritable
    check_user_input_output clear_dynamo_tls explain export get_compiler_fn get_example_inputs
    get_skip_reasons guard_collectives_hook innermost_backend innermost_fn is_dynamo_supported
    is_inductor_supported make_set_enable_dynamic nothing optimize optimize_assert
    remove_from_cache reset_skip_reasons rewrite_signature set_enable_dynamic skip_code
  enum Unset token
torch._dynamo.exc
  class AutogradGradRestartAnalysis BackendCompilerFailed CompileCollectiveRestartAnalysis
    CondOpArgsMismatchError FailOnRecompileLimitHit InfiniteGeneratorError
    InternalTorchDynamoError InvalidBackend KeyErrorMsg ObservedAttributeError ObservedException
    ObservedGeneratorExit ObservedIndexError ObservedKeyError ObservedLookupError
    ObservedNotImplementedError ObservedRuntimeError ObservedTypeError ObservedUserStopIteration
    PackageError RecompileError RequiresGradRestartAnalysis ResetRequired RestartAnalysis
    ResumePrologueTracingError ShortenTraceback SkipFrame SpeculationRestartAnalysis
    StepUnsupported TensorifyScalarRestartAnalysis TorchDynamoException TorchRuntimeError
    UncapturedHigherOrderOpError UnknownPropertiesDuringBackwardTrace UnsafeScriptObjectError
    UnspecializeRestartAnalysis Unsupported UserError
  def augment_exc_message augment_exc_message_with_hop_name collapse_resume_frames
    exportdb_error_message filter_stack format_error_msg format_error_msg_verbose
    format_frame_info format_graph_break_message format_skip_frame_message
    get_dynamo_observed_exception get_exc_message get_gbid_documentation_link get_real_stack
    get_stack_above_dynamo handle_observed_exception raise_observed_exception raise_type_error
    raise_value_error remove_resume_prefix unimplemented unimplemented_with_warning
  enum UserErrorType DYNAMIC_CONTROL_FLOW ANTI_PATTERN STANDARD_LIBRARY CONSTRAINT_VIOLATION
    DYNAMIC_DIM INVALID_INPUT INVALID_OUTPUT UNSUPPORTED_ALIASED_MUTATED_DYNAMIC_INPUTS
torch._functorch.apis
  def chunk_vmap
torch._higher_order_ops
  class BaseHOP InvokeQuant
  def _foreach_map aoti_call_delegate auto_functionalized auto_functionalized_v2 call_torchbind
    dynamo_bypassing_wrapper executorch_call_delegate flat_apply flex_attention
    flex_attention_backward foreach_map hints_wrapper inductor_compiled_code
    inline_asm_elementwise invoke_leaf_function invoke_quant invoke_quant_packed invoke_subgraph
    local_map_hop out_dtype print run_const_graph strict_mode tag_activation_checkpoint
    while_loop_stack_output with_effects wrap_activation_checkpoint wrap_with_autocast
    wrap_with_set_grad_enabled
torch._higher_order_ops.associative_scan
  class AssociativeScanAutogradOp AssociativeScanOp
  def associative_scan_autograd associative_scan_functionalize
    associative_scan_op_dense associative_scan_proxy_mode assoiciative_scan_fake_tensor_mode
    generic_associative_scan safe_map trace_associative_scan wrap_combine_fn_flat
torch._inductor.cpu_vec_isa
  class InvalidVecISA VecAMX VecAVX2 VecAVX512 VecAVX512VNNI VecISA VecNEON VecSVE VecVSX
    VecZVECTOR
  def get_isa_from_cpu_capability pick_vec_isa valid_vec_isa_list x86_isa_checker
torch._inductor.runtime.cache_dir_utils
  def cache_dir default_cache_dir temporary_cache_dir triton_cache_dir
torch._subclasses
  class CrossRefFakeMode DynamicOutputShapeException FakeTensor FakeTensorMode
    UnsupportedFakeTensorException
torch._subclasses.fake_tensor
  class DataDependentOutputException DispatchCacheInfo DynamicOutputShapeException FakeCopyMode
    FakeTensor FakeTensorConfig FakeTensorConverter FakeTensorDeviceMismatchError FakeTensorMode
    FakeTensorTLS IncrementRecursionCount MetadataMismatchError SingletonConstant
    SymNumberMemoDescriptor TensorMetadata UnsupportedFakeTensorException
    UnsupportedMutationAliasingException UnsupportedOperatorException
  def disable_fake_tensor_cache dump_cache_stats evict_fake_tensor_cache_key
    extract_tensor_metadata get_plain_tensors get_schema_info in_kernel_invocation_manager
    inferred_fake_kernel_from_real_out init_gpu_context is_fake maybe_get_fake_mode ordered_set
    run_fallback_kernel should_allow_numbers_as_tensors torch_decomp_decompositions
    tree_flatten_only unset_fake_temporarily
torch.ao.nn.intrinsic
  class BNReLU2d BNReLU3d ConvAdd2d ConvAddReLU2d ConvBn1d ConvBn2d ConvBn3d ConvBnReLU1d
    ConvBnReLU2d ConvBnReLU3d ConvReLU1d ConvReLU2d ConvReLU3d LinearBn1d LinearLeakyReLU
    LinearReLU LinearTanh
torch.ao.nn.quantized
  class BatchNorm2d BatchNorm3d Conv1d Conv2d Conv3d ConvTranspose1d ConvTranspose2d
    ConvTranspose3d DeQuantize Dropout ELU Embedding EmbeddingBag FXFloatFunctional
    FloatFunctional GroupNorm Hardswish InstanceNorm1d InstanceNorm2d InstanceNorm3d LSTM
    LayerNorm LeakyReLU Linear MultiheadAttention PReLU QFunctional Quantize ReLU6 Sigmoid Softmax
torch.ao.quantization
  class AffineQuantizedObserverBase DeQuantStub FakeQuantize FakeQuantizeBase
    FixedQParamsFakeQuantize FixedQParamsObserver FusedMovingAvgObsFakeQuantize Granularity
    HistogramObserver MinMaxObserver MovingAverageMinMaxObserver
    MovingAveragePerChannelMinMaxObserver NoopObserver ObserverBase PerAxis PerBlock
    PerChannelMinMaxObserver PerGroup PerRow PerTensor PerToken PlaceholderObserver QConfig
    QConfigDynamic QConfigMapping QuantStub QuantWrapper RecordingObserver ReuseInputObserver
    UniformQuantizationObserverBase default_debug_observer default_placeholder_observer
    default_reuse_input_observer
  def ObserverOrFakeQuantize QConfigAny add_quant_dequant convert convert_dynamic_jit convert_jit
    default_affine_fixed_qparams_fake_quant default_affine_fixed_qparams_observer
    default_dynamic_fake_quant default_dynamic_quant_observer default_embedding_fake_quant
    default_embedding_fake_quant_4bit default_eval_fn default_fake_quant
    default_fixed_qparams_range_0to1_fake_quant default_fixed_qparams_range_0to1_observer
    default_fixed_qparams_range_neg1to1_fake_quant default_fixed_qparams_range_neg1to1_observer
    default_float_qparams_observer default_float_qparams_observer_4bit
    default_fused_act_fake_quant default_fused_per_channel_wt_fake_quant
    default_fused_wt_fake_quant default_histogram_fake_quant default_histogram_observer
    default_observer default_per_channel_weight_fake_quant default_per_channel_weight_observer
    default_symmetric_fixed_qparams_fake_quant default_symmetric_fixed_qparams_observer
    default_weight_fake_quant default_weight_observer disable_fake_quant disable_observer
    enable_fake_quant enable_observer fuse_conv_bn fuse_conv_bn_jit fuse_conv_bn_relu
    fuse_convtranspose_bn fuse_linear_bn fuse_modules fuse_modules_qat
    fused_per_channel_wt_fake_quant_range_neg_127_to_127 fused_wt_fake_quant_range_neg_127_to_127
    get_block_size get_default_compare_output_module_list get_default_custom_config_dict
    get_default_dynamic_quant_module_mappings get_default_dynamic_sparse_quant_module_mappings
    get_default_float_to_quantized_operator_mappings get_default_qat_module_mappings
    get_default_qat_qconfig get_default_qat_qconfig_dict get_default_qat_qconfig_mapping
    get_default_qconfig get_default_qconfig_dict get_default_qconfig_mapping
    get_default_qconfig_propagation_list get_default_static_quant_module_mappings
    get_default_static_quant_reference_module_mappings
    get_default_static_sparse_quant_module_mappings get_dynamic_quant_module_class
    get_embedding_qat_module_mappings get_embedding_static_quant_module_mappings get_fuser_method
    get_fuser_method_new get_observer_state_dict get_quantized_operator
    get_static_quant_module_class load_observer_state_dict no_observer_set
    per_channel_weight_observer_range_neg_127_to_127 prepare prepare_dynamic_jit prepare_jit
    prepare_qat propagate_qconfig_ qconfig_equals quantize quantize_dynamic quantize_dynamic_jit
    quantize_jit quantize_qat script_qconfig script_qconfig_dict swap_module
    weight_observer_range_neg_127_to_127
  enum MappingType SYMMETRIC SYMMETRIC_NO_CLIPPING_ERR ASYMMETRIC
  enum QuantType DYNAMIC STATIC QAT WEIGHT_ONLY
  enum TorchAODType INT1 INT2 INT3 INT4 INT5 INT6 INT7
  enum ZeroPointDomain INT FLOAT NONE
torch.autograd.profiler_legacy
  class profile
torch.backends.cuda
  class SDPAParams cuBLASModule cuFFTPlanCache cuFFTPlanCacheAttrContextProp cuFFTPlanCacheManager
  def allow_fp16_bf16_reduction_math_sdp blas_workspace_size can_use_cudnn_attention
    can_use_efficient_attention can_use_flash_attention cublas_workspace_size
    cublaslt_workspace_size fp16_bf16_reduction_math_sdp_allowed is_ck_sdpa_available
    is_flash_attention_available preferred_blas_library preferred_linalg_library
    preferred_rocm_fa_library
torch.cuda
  class BFloat16Storage BoolStorage ByteStorage CUDAGraph CUDAPluggableAllocator CharStorage
    ComplexDoubleStorage ComplexFloatStorage CudaError DeferredCudaCallError DoubleStorage
    ExternalStream FloatStorage GreenContext HalfStorage IntStorage LongStorage MemPool
    ShortStorage StreamContext cudaStatus device_of graph
  def caching_allocator_alloc caching_allocator_delete caching_allocator_disabled
    caching_allocator_enable can_device_access_peer change_current_allocator check_error
    clock_rate cudart current_blas_handle current_solver_handle default_stream device_memory_used
    get_allocator_backend get_gencode_flags get_per_process_memory_fraction
    get_stream_from_external get_sync_debug_mode graph_pool_handle host_memory_stats
    host_memory_stats_as_nested_dict ipc_collect is_current_stream_capturing list_gpu_processes
    make_graphed_callables max_memory_cached memory_cached memory_snapshot
    memory_stats_as_nested_dict memory_summary memory_usage power_draw
    reset_accumulated_host_memory_stats reset_accumulated_memory_stats reset_max_memory_allocated
    reset_max_memory_cached reset_peak_host_memory_stats set_per_process_memory_fraction
    set_stream set_sync_debug_mode temperature use_mem_pool utilization
torch.cuda.graphs
  class CUDAGraph graph
  def graph_pool_handle is_current_stream_capturing make_graphed_callables
torch.cuda.memory
  class CUDAPluggableAllocator MemPool
  def caching_allocator_alloc caching_allocator_delete caching_allocator_disabled
    caching_allocator_enable change_current_allocator empty_cache get_allocator_backend
    get_per_process_memory_fraction host_memory_stats host_memory_stats_as_nested_dict
    list_gpu_processes max_memory_allocated max_memory_cached max_memory_reserved mem_get_info
    memory_allocated memory_cached memory_reserved memory_snapshot memory_stats
    memory_stats_as_nested_dict memory_summary reset_accumulated_host_memory_stats
    reset_accumulated_memory_stats reset_max_memory_allocated reset_max_memory_cached
    reset_peak_host_memory_stats reset_peak_memory_stats set_per_process_memory_fraction
    use_mem_pool
torch.cuda.nvtx
  def mark range range_end range_pop range_push range_start
torch.cuda.profiler
  def profile start stop
torch.cuda.sparse
  class BFloat16Tensor ByteTensor CharTensor DoubleTensor FloatTensor HalfTensor IntTensor
    LongTensor ShortTensor
torch.distributed
  class DistBackendError DistError DistNetworkError DistStoreError FileStore QueueEmptyError
  def _rank_not_in_group breakpoint
torch.distributed._composable
torch.distributed._composable.fsdp
  class FSDPModule
  def fully_shard
torch.distributed._functional_collectives
  class AsyncCollectiveTensor
  def all_gather_inplace all_gather_into_tensor_backward all_gather_into_tensor_coalesced
    all_gather_into_tensor_coalesced_backward all_gather_into_tensor_coalesced_setup_context
    all_gather_into_tensor_setup_context all_gather_single all_gather_single_autograd
    all_gather_single_coalesced all_gather_tensor all_gather_tensor_autograd
    all_gather_tensor_inplace all_reduce all_reduce_backward all_reduce_coalesced
    all_reduce_coalesced_backward all_reduce_coalesced_setup_context all_reduce_inplace
    all_reduce_setup_context all_to_all_inplace all_to_all_single all_to_all_single_autograd
    all_to_all_single_backward all_to_all_single_setup_context
    allow_inflight_collective_as_graph_input_ctx batch_p2p_ops_inplace broadcast irecv_inplace
    isend_inplace permute_tensor reduce_scatter_single reduce_scatter_single_autograd
    reduce_scatter_single_coalesced reduce_scatter_tensor reduce_scatter_tensor_autograd
    reduce_scatter_tensor_backward reduce_scatter_tensor_coalesced
    reduce_scatter_tensor_coalesced_backward reduce_scatter_tensor_coalesced_setup_context
    reduce_scatter_tensor_inplace reduce_scatter_tensor_setup_context wait_tensor
    wait_tensor_backward wait_tensor_setup_context
torch.distributed._tensor
  class DTensor
torch.distributed._tensor.experimental
  def context_parallel implicit_replication local_map register_sharding
torch.distributed.algorithms._checkpoint.checkpoint_wrapper
  class ActivationWrapper CheckpointWrapper OffloadWrapper
  def apply_activation_checkpointing checkpoint_wrapper offload_wrapper
  enum CheckpointImpl REENTRANT NO_REENTRANT
torch.distributed.algorithms.ddp_comm_hooks.default_hooks
torch.distributed.algorithms.ddp_comm_hooks.post_localSGD_hook
  class PostLocalSGDState
  def post_localSGD_hook
torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook
  def batched_powerSGD_hook
torch.distributed.algorithms.join
  class Join JoinHook Joinable
torch.distributed.algorithms.model_averaging.averagers
  class ModelAverager PeriodicModelAverager
torch.distributed.autograd
  class DistAutogradContext context
  def backward get_gradients is_available
torch.distributed.checkpoint
  class FileSystemReader FileSystemWriter
  def load load_state_dict save save_state_dict
torch.distributed.checkpoint._consolidate_hf_safetensors
  def consolidate_safetensors_files consolidate_safetensors_files_on_every_rank
torch.distributed.checkpoint.default_planner
  class DefaultLoadPlanner DefaultSavePlanner
  def create_default_global_load_plan create_default_global_save_plan
    create_default_local_load_plan create_default_local_save_plan
torch.distributed.checkpoint.filesystem
  class FileSystem FileSystemBase FileSystemReader FileSystemWriter
  enum SerializationFormat TORCH_SAVE SAFETENSORS
torch.distributed.checkpoint.format_utils
  class BroadcastingTorchSaveReader DynamicMetaLoadPlanner _EmptyStateDictLoadPlanner
  def _load_state_dict dcp_to_torch_save torch_save_to_dcp
torch.distributed.checkpoint.hf_storage
  class HuggingFaceStorageReader HuggingFaceStorageWriter
torch.distributed.checkpoint.metadata
  class BytesStorageMetadata ChunkStorageMetadata Metadata MetadataIndex StorageMeta
    TensorProperties TensorStorageMetadata
torch.distributed.checkpoint.optimizer
  def load_sharded_optimizer_state_dict
torch.distributed.checkpoint.planner
  class BytesIOWriteData LoadPlan LoadPlanner ReadItem SavePlan SavePlanner TensorWriteData
    WriteItem
  enum LoadItemType TENSOR BYTE_IO
  enum WriteItemType TENSOR SHARD BYTE_IO
torch.distributed.checkpoint.state_dict
  class StateDictOptions
  def DictValueType FQNS_T ListDictValueType OptimizerStateType get_model_state_dict
    get_optimizer_state_dict get_state_dict set_model_state_dict set_optimizer_state_dict
    set_state_dict
torch.distributed.checkpoint.state_dict_loader
  def _load_state_dict load load_state_dict
torch.distributed.checkpoint.state_dict_saver
  class AsyncSaveResponse
  def async_save save save_state_dict
  enum AsyncCheckpointerType THREAD PROCESS
torch.distributed.checkpoint.stateful
  class Stateful
torch.distributed.constants
torch.distributed.distributed_c10d
  class AllToAllOptions AllreduceCoalescedOptions AllreduceOptions Backend BackendConfig
    BarrierOptions BroadcastOptions DebugLevel GatherOptions GroupMember P2POp PrefixStore
    ProcessGroup ProcessGroupGloo ReduceOp ReduceOptions ReduceScatterOptions ScatterOptions Store
    Work group
  def GroupName _get_default_group all_gather all_gather_coalesced all_gather_into_tensor
    all_gather_object all_gather_single all_reduce all_reduce_coalesced all_to_all
    all_to_all_single barrier batch_isend_irecv broadcast broadcast_object_list
    destroy_process_group gather gather_object get_backend get_backend_config get_debug_level
    get_default_backend_for_device get_global_rank get_group_rank get_node_local_rank get_pg_count
    get_process_group_ranks get_rank get_world_size init_process_group irecv is_backend_available
    is_gloo_available is_initialized is_mpi_available is_nccl_available is_torchelastic_launched
    is_ucc_available is_xccl_available isend monitored_barrier new_group new_subgroups
    new_subgroups_by_enumeration record_comm recv recv_object_list reduce reduce_scatter
    reduce_scatter_single reduce_scatter_tensor scatter scatter_object_list send send_object_list
    shrink_group split_group supports_complex
torch.distributed.elastic.multiprocessing
  class DefaultLogsSpecs LogsDest LogsSpecs MultiprocessContext PContext ProcessFailure
    RunProcsResult SignalException SubprocessContext
  def start_processes to_map
  enum Std NONE OUT ERR ALL
torch.distributed.elastic.multiprocessing.errors
  class ChildFailedError ErrorHandler ProcessFailure
  def get_error_handler record
torch.distributed.fsdp
  class CPUOffload CPUOffloadPolicy DataParallelMeshDims FSDPModule FullOptimStateDictConfig
    FullStateDictConfig FullyShardedDataParallel LocalOptimStateDictConfig LocalStateDictConfig
    MixedPrecision MixedPrecisionPolicy OffloadPolicy OptimStateDictConfig
    ShardedOptimStateDictConfig ShardedStateDictConfig StateDictConfig StateDictSettings
    UnshardHandle
  def register_fsdp_forward_method share_comm_ctx
  enum BackwardPrefetch BACKWARD_PRE BACKWARD_POST
  enum OptimStateKeyType PARAM_NAME PARAM_ID
  enum ShardingStrategy FULL_SHARD SHARD_GRAD_OP NO_SHARD HYBRID_SHARD _HYBRID_SHARD_ZERO2
  enum StateDictType FULL_STATE_DICT LOCAL_STATE_DICT SHARDED_STATE_DICT
torch.distributed.fsdp.api
  class CPUOffload FullOptimStateDictConfig FullStateDictConfig LocalOptimStateDictConfig
    LocalStateDictConfig MixedPrecision OptimStateDictConfig ShardedOptimStateDictConfig
    ShardedStateDictConfig StateDictConfig StateDictSettings
  enum BackwardPrefetch BACKWARD_PRE BACKWARD_POST
  enum ShardingStrategy FULL_SHARD SHARD_GRAD_OP NO_SHARD HYBRID_SHARD _HYBRID_SHARD_ZERO2
  enum StateDictType FULL_STATE_DICT LOCAL_STATE_DICT SHARDED_STATE_DICT
torch.distributed.fsdp.fully_sharded_data_parallel
  class CPUOffload FullOptimStateDictConfig FullStateDictConfig FullyShardedDataParallel
    MixedPrecision ShardedOptimStateDictConfig ShardedStateDictConfig
  enum BackwardPrefetch BACKWARD_PRE BACKWARD_POST
  enum OptimStateKeyType PARAM_NAME PARAM_ID
  enum ShardingStrategy FULL_SHARD SHARD_GRAD_OP NO_SHARD HYBRID_SHARD _HYBRID_SHARD_ZERO2
  enum StateDictType FULL_STATE_DICT LOCAL_STATE_DICT SHARDED_STATE_DICT
torch.distributed.fsdp.sharded_grad_scaler
  class ShardedGradScaler
torch.distributed.fsdp.wrap
  class CustomPolicy ModuleWrapPolicy
  def _or_policy always_wrap_policy enable_wrap lambda_auto_wrap_policy
    size_based_auto_wrap_policy transformer_auto_wrap_policy wrap
torch.distributed.launcher
torch.distributed.launcher.api
  class LaunchConfig elastic_launch
  def launch_agent
torch.distributed.optim
  class DistributedOptimizer PostLocalSGDOptimizer
  def as_functional_optim
torch.distributed.pipelining
  class Pipe ScheduleDualPipeV ScheduleInterleaved1F1B ScheduleInterleavedZeroBubble
    ScheduleLoopedBFS ScheduleZBVZeroBubble
  def build_stage pipe_split pipeline
  enum SplitPoint BEGINNING END
torch.distributed.rpc
  class AllGatherStates RRef RpcBackendOptions TensorPipeRpcBackendOptions
  def get_worker_info init_rpc is_available method_factory new_method remote rpc_async rpc_sync
    shutdown
  enum BackendType TENSORPIPE
torch.distributed.rpc.api
  class AllGatherStates RRef
  def _all_gather _barrier _require_initialized get_worker_info method_factory new_method remote
    rpc_async rpc_sync shutdown
torch.distributed.run
  def config_from_args determine_local_world_size get_args_parser get_rdzv_endpoint get_use_env
    main parse_args parse_min_max_nnodes run run_script_path
torch.distributed.tensor
  class DTensor Partial Placement Replicate Shard
  def distribute_module distribute_tensor empty full ones rand randn zeros
torch.distributed.tensor.device_mesh
  class DeviceMesh
  def init_device_mesh
torch.distributed.tensor.experimental
  def context_parallel implicit_replication local_map register_sharding
torch.distributed.tensor.parallel
  class PrepareModuleInput PrepareModuleInputOutput PrepareModuleOutput SequenceParallel
  def loss_parallel
torch.distributed.tensor.placement_types
  class Partial Placement Replicate Shard _StridedShard
torch.distributed.utils
  def _sync_module_states
torch.export
  class AdditionalInputs CustomDecompTable Dim ExportBackwardSignature ExportGraphSignature
    ExportedProgram FlatArgsAdapter ModuleCallEntry ModuleCallSignature ShapesCollection
    UnflattenedModule
  def default_decompositions dims draft_export export load register_dataclass save unflatten
torch.export._trace
  class ATenExportArtifact ExportArtifact ExportDynamoConfig
  def custom_triton_ops_decomposition_disabled detect_shape_env get_ep_stats patch_forward
    set_missing_meta_vals
torch.export.decomp_utils
  class CustomDecompTable
torch.fx.experimental.symbolic_shapes
  class ConvertIntKey GuardOnDataDependentSymNode ShapeEnv Specialization StatefulSymbolicContext
    StatelessSymbolicContext SubclassSymbolicContext SymIntEqByExpr SymIntSymbolicContext
    SymbolicContext TrackedFake ValueRangesSLoc
  def canonicalize_bool_expr check_consistent compute_unbacked_bindings create_contiguous
    free_symbols free_unbacked_symbols guard_float guard_int guard_or_false guard_or_true
    guard_scalar guard_size_oblivious guarding_hint_or_throw has_free_symbols
    has_free_unbacked_symbols has_static_value has_symbolic_sizes_strides is_accessor_node
    is_concrete_bool is_concrete_float is_concrete_int is_nested_int is_symbol_binding_fx_node
    optimization_hint rebind_unbacked resolve_unbacked_bindings statically_known_false
    statically_known_true sym_and sym_eq sym_or
torch.monitor
  class TensorboardEventHandler
torch.mtia
  class MTIAGraph device graph
  def attach_out_of_memory_observer current_device current_stream default_stream device_count
    empty_cache get_device_capability get_device_properties get_rng_state get_rng_state_all
    graph_pool_handle init initial_seed is_available is_bf16_supported is_initialized manual_seed
    manual_seed_all max_memory_allocated memory_allocated memory_stats record_memory_history
    reset_peak_memory_stats seed seed_all set_device set_rng_state set_rng_state_all set_stream
    snapshot stream synchronize
torch.onnx
  class ExportableModule InputObserver ONNXProgram OnnxExporterError OperatorExportTypes
    TrainingMode
torch.onnx.symbolic_helper
torch.onnx.verification
  class VerificationInfo
  def verify_onnx_program
torch.package
torch.quantization
  class DeQuantStub HistogramObserver ObserverBase QConfig QuantStub QuantWrapper
    default_placeholder_observer
  def add_quant_dequant convert default_eval_fn default_fake_quant
    default_fixed_qparams_range_0to1_fake_quant default_fixed_qparams_range_neg1to1_fake_quant
    default_histogram_fake_quant default_observer default_per_channel_weight_fake_quant
    default_per_channel_weight_observer default_weight_fake_quant default_weight_observer
    fuse_modules get_default_compare_output_module_list get_default_dynamic_quant_module_mappings
    get_default_qat_module_mappings get_default_qconfig_propagation_list
    get_default_static_quant_module_mappings get_fuser_method get_quantized_operator
    get_static_quant_module_class prepare prepare_qat propagate_qconfig_ quantize quantize_dynamic
    quantize_dynamic_jit quantize_jit quantize_qat swap_module
  enum QuantType DYNAMIC STATIC QAT WEIGHT_ONLY
torch.utils.cpp_extension
  class BuildExtension
  def CUDAExtension CppExtension SyclExtension check_compiler_is_gcc
    check_compiler_ok_for_platform get_compiler_abi_compatibility_and_version get_cxx_compiler
    get_default_build_root include_paths is_ninja_available library_paths load load_inline
    remove_extension_h_precompiler_headers verify_ninja_availability
torch.utils.flop_counter
  class FlopCounterMode
  def register_flop_formula
torch.utils.mobile_optimizer
  def generate_mobile_module_lints optimize_for_mobile
  enum LintCode BUNDLED_INPUT REQUIRES_GRAD DROPOUT BATCHNORM
torch.distributed.tensor._utils
  def compute_local_shape_and_global_offset
torch.distributed.tensor.experimental._attention
  def set_rotate_method
torch._C._distributed_rpc
  def _is_current_rpc_agent_set
torch.numa.binding
  class NumaOptions
  enum AffinityMode NODE SOCKET EXCLUSIVE CORE_COMPLEX
torch.fx.experimental.proxy_tensor
  class ProxyTorchDispatchMode
  def get_proxy_mode make_fx
torch.fx.passes.infra.pass_base
  class PassBase PassResult
torch.fx._pytree
  def register_pytree_flatten_spec tree_flatten_spec
torch.onnx.symbolic_opset9
  def masked_fill softmax
torch.onnx.symbolic_opset12
  def dropout
torch.utils._sympy.numbers
  class IntInfinity
torch.utils._sympy.value_ranges
  class ValueRanges
torch.utils.data.graph_settings
  def apply_shuffle_settings
torch.utils.data.datapipes.iter
  class Batcher
torch.utils.data.datapipes.iter.combinatorics
  class ShufflerIterDataPipe
torch.nn.utils._per_sample_grad
  def call_for_per_sample_grads
torch.nn.functional
  def scaled_mm
  enum ScalingType TensorWise RowWise
torch.ao.quantization.fx
  def prepare_fx convert_fx
torch.nn.parallel.scatter_gather
  def gather scatter scatter_kwargs
"""
