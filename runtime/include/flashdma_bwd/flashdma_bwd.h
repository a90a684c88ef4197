/** \file
 * The C ABI of flashdma_bwd: the backward pass of dynamic mask attention on NVIDIA GPUs.
 *
 * The mathematics, for each batch and head (natural logarithms and exponentials):
 *
 *     t  = scale * q k^T;   s = softcap > 0 ? softcap * tanh(t / softcap) : t;   s += bias;   masked pairs: P = 0
 *     P  = exp(s - lse);    D = rowsum(dO * O);    dP = dO V^T;    dS = P * (dP - D)
 *     dV = P^T dO;          dBias = dS summed over the bias's broadcast dimensions
 *     g  = softcap > 0 ? dS * (1 - tanh^2(t / softcap)) : dS;      dQ = scale * g K;      dK = scale * g^T Q
 *
 * With fewer KV heads than query heads (GQA, MQA) query head x goes with KV head x / (heads / heads_kv), and dK and dV
 * of a KV head are the sums over its query heads.
 *
 * A pair (query i, key j) is masked when the mask says so, when the bias is -inf, or when causality or the window does:
 * with the offset delta = (seqlen_k - seqlen_q) of global lengths plus query_offset - key_offset, causal keeps
 * j <= i + delta, a window (left, right) keeps i + delta - left <= j <= i + delta + right. Masked keys may hold any
 * finite value.
 *
 * Conventions. Sizes are counts of elements; strides are in elements, not bytes. All tensor pointers are device memory,
 * except for flashdma_bwd_backward_reference, which takes host memory. The caller owns all memory and the stream, which
 * is of the current device. Structs, a plan's among them, are read during a call only; the device memory that they name
 * must stay as it is until the stream has passed the call, and as long as a graph that captured it is replayed.
 * Backwards that may run at the same time need a workspace each. Structs are plain values with their size in
 * struct_size, which must be this library's: flashdma_bwd_arguments_init and flashdma_bwd_tuning_init set it,
 * flashdma_bwd_plan_build sets a plan's and flashdma_bwd_schedule_build a schedule's, and in all others the caller sets
 * it to sizeof. Every function that can fail returns a flashdma_bwd_code and leaves a message for
 * flashdma_bwd_last_message(). Beside the codes that it names it returns UNSUPPORTED where the host has run out of
 * memory or threads. No function throws, aborts, allocates device memory or synchronises, but for a backward that
 * measures, which the caller must have asked for: see FLASHDMA_BWD_TUNE_FIRST_USE. All are safe to call from many
 * threads at once.
 *
 * Variables of the environment (FLASHDMA_BWD_*) are read once, when the library first needs them. FLASHDMA_BWD_LOG is
 * off, warning (the default) or info: what the library has to say goes to the standard error output.
 */
#ifndef FLASHDMA_BWD_H
#define FLASHDMA_BWD_H

#include <stddef.h>
#include <stdint.h>

#if defined(FLASHDMA_BWD_SHARED)
#define FLASHDMA_BWD_API __attribute__((visibility("default")))
#else
#define FLASHDMA_BWD_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/** A CUDA stream (cudaStream_t), named so that this header needs no CUDA. NULL is the legacy default stream. */
typedef struct CUstream_st* flashdma_bwd_stream;

typedef enum flashdma_bwd_code {
  FLASHDMA_BWD_OK = 0,
  FLASHDMA_BWD_INVALID_ARGUMENT = 1,         /**< the message names the argument and the rule */
  FLASHDMA_BWD_UNSUPPORTED = 2,              /**< a valid problem, or a field, that this version does not compute */
  FLASHDMA_BWD_UNSUPPORTED_ARCHITECTURE = 3, /**< no compiled kernels can run on this GPU */
  FLASHDMA_BWD_NOT_COMPILED =
      4, /**< the chosen kernel is not in this build; the message names the profile that has it */
  FLASHDMA_BWD_WORKSPACE_TOO_SMALL = 5, /**< the message has the bytes needed and given */
  FLASHDMA_BWD_CUDA_ERROR = 6,          /**< the message has the call and CUDA's own words */
  FLASHDMA_BWD_OVERRIDE_ERROR = 7 /**< FLASHDMA_BWD_KERNEL, _TABLE, _ARCH, _PIECE_STEPS or _TUNE_* (or their API forms),
                                     or the kernel of a schedule, cannot be honoured */
} flashdma_bwd_code;

typedef enum flashdma_bwd_data_type {
  FLASHDMA_BWD_FP16 = 0,
  FLASHDMA_BWD_BF16 = 1,
  FLASHDMA_BWD_FP32 = 2 /**< only for bias, where it is a key vector, and for dBias */
} flashdma_bwd_data_type;

/** One of Q, K, V, O, dO, dQ, dK, dV: element (b, s, h, c) is at data + b*stride_batch + s*stride_row + h*stride_head +
 * c. Fixed length: [batch, seqlen, heads, head_dim], with seqlen_q and heads for Q, O, dO and dQ, seqlen_k and heads_kv
 * for K, V, dK and dV. Variable length (packed): [total, heads, head_dim], with total_q or total_k, stride_batch
 * ignored. data must be 16-byte aligned and the strides multiples of 8 elements, none negative. A stride of an input
 * may be 0. The rows of an input's head, with variable length of the longest sequence, lie within 2^31 - 1 elements. */
typedef struct flashdma_bwd_tensor {
  void* data;
  int64_t stride_batch;
  int64_t stride_row;
  int64_t stride_head;
} flashdma_bwd_tensor;

/** How a mask says which pairs it keeps. Contents are read on the device, where nothing can be refused: what has no
 * sense there masks or is passed over, as each says. flashdma_bwd_backward_reference, which sees them, refuses numbers
 * that are neither a key nor -1, keys that stand twice, and intervals that are reversed or reach out of
 * 0 ... seqlen_q. */
typedef enum flashdma_bwd_mask_encoding {
  /** A byte a pair, [batch, heads, seqlen_q, seqlen_k]: 0 masks, anything else keeps. */
  FLASHDMA_BWD_ENCODING_BYTES = 0,
  /** A bit a pair, [batch, heads, seqlen_q, ceil(seqlen_k / 8)] bytes: key k is bit k % 8 of byte k / 8, 1 keeps. rows
   * and columns count pairs, as with bytes, and are broadcast as there; strides are in bytes and stride_column is
   * ignored. Bits past the last column do not matter. Rows that begin at multiples of 8 bytes are read fastest. */
  FLASHDMA_BWD_ENCODING_BITS = 1,
  /** The keys that all queries see, int32 [batch, heads, n]: rows is 1 and columns is n, in any order. Numbers that are
   * no key, negative ones among them, are passed over wherever they stand, so that lists may be padded with -1; a key
   * that stands twice counts once. Lists of no keys, which keep nothing, still need an address, any but NULL. */
  FLASHDMA_BWD_ENCODING_KEY_LIST = 2,
  /** The queries that see each key, int32 begin and end, [begin, end): rows is 2, begins and ends, and columns is
   * seqlen_k, or 1 for all keys alike. Of an array [batch, heads, seqlen_k, 2] stride_row is 1 and stride_column 2.
   * Intervals are cut to 0 ... seqlen_q; one whose end is not above its begin is empty. Begins and ends have memory of
   * their own: stride_row is not 0, and not stride_column where columns > 1. */
  FLASHDMA_BWD_ENCODING_INTERVALS = 3,
  /** A byte a block of mask_block_q queries x mask_block_k keys, as FLASHDMA_BWD_ENCODING_BYTES for all pairs of the
   * block: rows is ceil(seqlen_q / mask_block_q), or 1, and columns is ceil(seqlen_k / mask_block_k), or 1. A block has
   * a multiple of 64 queries and keys, 65472 at most. */
  FLASHDMA_BWD_ENCODING_BLOCKS = 4
} flashdma_bwd_mask_encoding;

/** A tensor of pairs: mask, bias or dBias. Each dimension of [batch, heads, seqlen_q, seqlen_k] is present or
 * broadcast. batch: 1 or the batch; heads: 1, heads_kv or heads; rows: 1 or seqlen_q; columns: 1 or seqlen_k. The
 * stride of a dimension of size 1 is ignored. A query head x uses head x / (heads / t.heads) of the tensor.
 * stride_column must be 1 where columns > 1. A stride of 0 broadcasts, too: a bias without dBias, a mask's batch and
 * heads, rows of bytes or bits and columns of bytes count as of size 1 there; dBias has the sizes that the bias is
 * given with, so that a bias that is one value per key or per query needs the size 1. A bias and dBias of seqlen_q rows
 * and seqlen_k columns whose addresses are multiples of 16 bytes and whose strides are multiples of 8 elements may have
 * faster kernels, with dBias where seqlen_k is one, too. With variable length, rows and columns are positions within a
 * sequence and seqlen_q and seqlen_k the maxima. A mask of another encoding has the rows, columns and strides that it
 * says. */
typedef struct flashdma_bwd_pair_tensor {
  void* data;        /**< NULL: there is none; a mask has no encoding then, unless there is a plan of it */
  int32_t data_type; /**< flashdma_bwd_data_type; ignored for the mask */
  int32_t encoding;  /**< of the mask: flashdma_bwd_mask_encoding; else 0 */
  int64_t batch, heads, rows, columns;
  int64_t stride_batch, stride_head, stride_row, stride_column;
} flashdma_bwd_pair_tensor;

/** Which representation a mask plan holds. */
typedef enum flashdma_bwd_key_layout {
  FLASHDMA_BWD_LAYOUT_NATURAL = 0,   /**< 64x64 atoms of bits with classes, keys in their own order */
  FLASHDMA_BWD_LAYOUT_COMPACTED = 1, /**< active keys only: the mask has one row */
  FLASHDMA_BWD_LAYOUT_REORDERED =
      2 /**< atoms of active keys in an order in which keys with alike queries share a tile */
} flashdma_bwd_key_layout;

/** Which layout is made of a mask. */
typedef enum flashdma_bwd_mask_layout {
  /** Natural with a tile bias. Else compacted where the mask has one row, natural with fewer than 2048 keys, and
   * reordered with more, where each mask of the batch x heads keeps the keys' own order if, counted on the device,
   * another would save no tiles. With a plan: the plan's, which others must be, too. */
  FLASHDMA_BWD_MASK_AUTO = 0,
  FLASHDMA_BWD_MASK_NATURAL = 1,
  FLASHDMA_BWD_MASK_COMPACTED = 2, /**< the mask must have one row */
  FLASHDMA_BWD_MASK_REORDERED = 3  /**< every mask is reordered, whether it saves tiles or not */
} flashdma_bwd_mask_layout;

/** What a reordered plan found on the device: plan.memory begins with one for each of the plan's batch x heads, once
 * the building has run. */
typedef struct flashdma_bwd_key_order {
  int32_t keys;          /**< in the order: those with an active pair, or all */
  int32_t natural;       /**< 1: the keys kept their own order */
  int32_t natural_tiles; /**< tiles of 64 queries x 128 keys with an active pair, in the keys' own order */
  int32_t ordered_tiles; /**< counted from the first to the last active query of each 128 keys: in the plan's order,
                            which has so many at most; natural 1: in the order that was tried, or, where none was, in
                            any order at least */
} flashdma_bwd_key_order;

/** A mask brought into the form that kernels read; built once by flashdma_bwd_plan_build, usable by any number of calls
 * whose mask is the same, whatever their head dim, bias, data type or, within the bounds below, causality. A call's
 * mask_layout is FLASHDMA_BWD_MASK_AUTO or the plan's. The fast kernels of a tile bias need a plan in the keys' own
 * order. It refers to caller-owned device memory. */
typedef struct flashdma_bwd_mask_plan {
  uint32_t struct_size;
  int32_t layout;                           /**< flashdma_bwd_key_layout */
  int64_t batch, heads, seqlen_q, seqlen_k; /**< of the mask; 1 of a batch or heads that a stride of 0 broadcasts */
  void* memory;                             /**< device; may be NULL where a plan of this shape has 0 bytes */
  size_t bytes;
  /** Pairs (query i, key j) with j - i outside of lowest_offset ... highest_offset are masked: causality and windows of
   * the arguments that the plan was built with hide them, and those of a call must hide them, too; a call that hides
   * more is a little slower. Without such limits, or with variable length, the plan holds all pairs: -2^30 ... 2^30. */
  int64_t lowest_offset, highest_offset;
  int64_t rows;      /**< of the mask; 1 of seqlen_q rows that a stride of 0 broadcasts */
  int32_t encoding;  /**< of the mask: flashdma_bwd_mask_encoding */
  int32_t reserved;  /**< 0 */
  uint64_t building; /**< a number that no other building of a plan has */
} flashdma_bwd_mask_plan;

/** What a call finds out of its plan before its main kernel: the tiles of queries that each tile of keys visits, and
 * which CTA takes what. Built once by flashdma_bwd_schedule_build, usable by any number of calls that have the same
 * plan and are alike in batch, heads, head dim, lengths, causality, window and offsets, in data type and kind of bias
 * and in having a softcap, on GPUs of the same kind; they run its kernel, and others are refused. Tensors, strides and
 * scale may differ, but that a kernel which copies a tile bias must be able to copy each. A kernel that does not serve
 * a call's problem is an OVERRIDE_ERROR, another difference an INVALID_ARGUMENT. It refers to caller-owned device
 * memory, and is of one building of a plan: a graph that builds a plan each time it is replayed must build the
 * schedule, too, since the host does not see that it was replayed. */
typedef struct flashdma_bwd_schedule {
  uint32_t struct_size;
  int32_t kernel;    /**< flashdma_bwd_kernel_name knows it; a number of this build; -1 of a call that runs none */
  uint64_t building; /**< of the plan */
  uint64_t call;     /**< a hash of what calls must have in common */
  void* memory;      /**< device; may be NULL where a schedule has 0 bytes */
  size_t bytes;
} flashdma_bwd_schedule;

/** What 64 keys of a reordered plan span, an atom of them: keys 64 k ... 64 k + 63 of its order. */
typedef struct flashdma_bwd_key_range {
  int32_t first_key;   /**< the smallest of the keys; above last_key where the atom has none */
  int32_t last_key;    /**< the largest */
  int32_t query_begin; /**< the first query atom with an active pair; above query_end where there is none */
  int32_t query_end;   /**< past the last one; 0 where there is none */
} flashdma_bwd_key_range;

/** The parts of a plan in its device memory, for kernels of the caller such as a forward: what flashdma_bwd_plan_view
 * fills. They are there once the building has run, and are read only. Parts that the layout has not are NULL:
 *
 *     natural      classes, words
 *     compacted    counts, keys
 *     reordered    orders, keys, ranges, classes, words
 *
 * Slots are positions in keys: key keys[b][h][slot] is the plan's key number slot, and without keys slot j is key j. An
 * atom is 64 queries x 64 slots. Bit j of word i of atom (k, q) says whether query 64 q + i sees slot 64 k + j: 1
 * keeps. Queries and slots past the last are 0. Pairs outside of the plan's lowest_offset ... highest_offset are 0,
 * too; within them a caller with narrower limits hides its own. A class has 0 for an atom all of whose pairs are
 * masked, 2 where all pairs that exist are kept, 1 for others. Words are written where any atom of the same 128 queries
 * x 128 slots (atoms 2 q, 2 q + 1 and 2 k, 2 k + 1) is not of class 0: all else in words, and in keys past the last
 * slot, is not initialised.
 *
 * With variable length queries and keys are positions within a sequence, and pairs past a sequence's end have bits,
 * too: the caller hides them. The plan's batch and heads are the mask's: query head x reads head x / (the call's heads
 * / heads), and a batch of 1 is that of all. */
typedef struct flashdma_bwd_plan_parts {
  uint32_t struct_size; /**< sizeof(flashdma_bwd_plan_parts), set by the caller */
  int32_t layout;       /**< flashdma_bwd_key_layout */
  int64_t batch, heads, seqlen_q, seqlen_k;
  int64_t query_atoms, key_atoms;       /**< of words, classes and ranges: 2 ceil(seqlen / 128) */
  const flashdma_bwd_key_order* orders; /**< [batch][heads] */
  const int32_t* counts;                /**< [batch][heads]: slots; where there are orders, orders.keys */
  const int32_t* keys;                  /**< [batch][heads][seqlen_k] */
  const flashdma_bwd_key_range* ranges; /**< [batch][heads][key_atoms] */
  const uint8_t* classes;               /**< [batch][heads][key_atoms][query_atoms] */
  const uint64_t* words;                /**< [batch][heads][key_atoms][query_atoms][64 queries] */
} flashdma_bwd_plan_parts;

/** What a reordered plan promises: sums over its batch x heads masks. Tiles are of 64 queries x 128 slots. */
typedef struct flashdma_bwd_plan_summary {
  uint32_t struct_size;    /**< sizeof(flashdma_bwd_plan_summary), set by the caller */
  uint32_t reserved;       /**< 0 */
  int64_t masks;           /**< batch x heads */
  int64_t reordered_masks; /**< of them; the others kept the keys' own order */
  int64_t keys;            /**< in the orders */
  int64_t all_tiles;       /**< that there are, with an active pair or not */
  int64_t natural_tiles;   /**< with an active pair, were all keys in their own order */
  int64_t predicted_tiles; /**< with an active pair in the orders as they are: at most, exact in the keys' own */
} flashdma_bwd_plan_summary;

/** flags of flashdma_bwd_arguments */
#define FLASHDMA_BWD_FLAG_DETERMINISTIC 1u /**< bitwise the same result on every run */
#define FLASHDMA_BWD_FLAG_TABLE_ONLY 2u    /**< ignore the overrides of the environment, and measured choices */

typedef struct flashdma_bwd_arguments {
  uint32_t struct_size; /**< set by flashdma_bwd_arguments_init */
  uint32_t flags;

  /** The problem. */
  int32_t data_type;              /**< FLASHDMA_BWD_FP16 or FLASHDMA_BWD_BF16 */
  int32_t head_dim;               /**< a multiple of 8, 8 ... 256 */
  int64_t batch, heads, heads_kv; /**< heads is a multiple of heads_kv */
  int64_t seqlen_q, seqlen_k; /**< up to 2^30 - 128; variable length: the longest sequence, or more, but 0 where all are
                                 empty */
  /** Of the scores: 1e-20 ... 1e20 but for its sign; init leaves 0, which means 1/sqrt(head_dim). */
  float scale;
  float softcap;  /**< 0: none; else 0.001 ... 1000000, and at least 1e-7 of the scale's size */
  int32_t causal; /**< 0 or 1 */
  /** Active pairs per 1000 pairs that causality and the window leave, the caller's estimate for kernel selection; 0:
   * unknown. A mask with fewer than one in 1000 has 1. */
  int32_t mask_density;
  int64_t window_left, window_right; /**< -1: unlimited */

  /** A shard of longer sequences: position of its first query and key, and the whole lengths, each up to 2^60. Lengths
   * of 0: seqlen_q and seqlen_k, with variable length each sequence's own, and then both or neither. */
  int64_t query_offset, key_offset, global_seqlen_q, global_seqlen_k;

  /** Variable length: device pointers to batch + 1 int32 offsets into the packed tensors, or NULL for fixed length.
   * Both or neither. */
  const int32_t* cu_seqlens_q;
  const int32_t* cu_seqlens_k;
  int64_t total_q, total_k; /**< rows of the packed tensors */

  flashdma_bwd_tensor q, k, v, out, d_out; /**< inputs */
  /** float32 logsumexp of each row: (b, h, i) at lse + b*lse_stride_batch + h*lse_stride_head + i*lse_stride_row, where
   * with variable length i counts packed rows and lse_stride_batch is ignored. No stride is negative. An empty row is
   * +inf or -inf, and all its probabilities and gradients are 0. It is the logsumexp of the row's own scores, or of
   * more of which these are a part: P is at most 1. One that is too small is not noticed. Where it makes P nearly 2 or
   * more, fp16 problems with head dims above 128 may lose the pair in dQ, dK and dBias and have it in dV; above 4, P
   * may overflow in bf16 problems with head dims above 128. */
  const float* lse;
  int64_t lse_stride_batch, lse_stride_head, lse_stride_row;
  int32_t lse_base_two; /**< 0: natural logarithm; 1: base 2 */
  int32_t mask_layout;  /**< flashdma_bwd_mask_layout: what is made of mask; init leaves the library's choice */
  flashdma_bwd_pair_tensor mask;
  flashdma_bwd_pair_tensor bias; /**< of Q's type, or FP32 where it is a key vector */
  /** NULL: built in the workspace from mask. Else mask.data is not read and may be NULL; if it is not, encoding, rows,
   * batch and heads must be those that the plan was built of, and strides do not matter. */
  const flashdma_bwd_mask_plan* plan;

  /** Outputs, which share no memory with the inputs or each other. All rows are written. */
  flashdma_bwd_tensor d_q, d_k, d_v;
  /** Another output. NULL data skips it; its shape must be the bias's, its strides are its own, its type the bias's or
   * FP32. */
  flashdma_bwd_pair_tensor d_bias;

  /* Room for what comes: up to sm_limit all must be 0 or NULL, otherwise FLASHDMA_BWD_UNSUPPORTED names the field. */
  const float* d_lse;                                         /**< must be NULL: gradient of the logsumexp */
  const float* row_dot;                                       /**< must be NULL: externally computed D */
  float beta_q, beta_k, beta_v, beta_bias;                    /**< must be 0: 0 writes, 1 adds */
  float *d_q_accumulator, *d_k_accumulator, *d_v_accumulator; /**< must be NULL: float32 outputs */
  int32_t sm_limit;                                           /**< must be 0: CTAs to use at most */

  /** Of a mask of blocks: queries and keys of a block, multiples of 64 up to 65472; else 0, with a plan ignored. */
  uint16_t mask_block_q, mask_block_k;
  uint64_t tag;       /**< the caller's name for this problem: hooks report it, nothing else reads it */
  const char* kernel; /**< canonical name of the kernel to use instead of the table's choice; NULL: the table */
  /** NULL: made in the workspace. Else one of this plan and of a call like this one, whose kernel decides. */
  const flashdma_bwd_schedule* schedule;
} flashdma_bwd_arguments;

/** What selection decided. Strings are static or owned by the library for its lifetime. */
typedef struct flashdma_bwd_selection {
  uint32_t struct_size;       /**< sizeof(flashdma_bwd_selection), set by the caller */
  int32_t compute_capability; /**< of the device: 10 * major + minor */
  int32_t tier;               /**< 0: the device's own table; 1, 2 ...: an older one; see row_architecture */
  int32_t row_line;           /**< of row_file; 0 where that has no lines */
  char kernel[128];           /**< canonical name */
  char row_file[64];          /**< the YAML table, what named the kernel, or the cache of measured choices ("first
                                 use": a choice that is in memory only); of a longer path its end behind "..." */
  char row_architecture[8];   /**< sm80 ... */
  int32_t layout;             /**< flashdma_bwd_key_layout of the mask's plan; -1: there is no mask */
} flashdma_bwd_selection;

/** The parts of DeviceTraits, to ask about GPUs that one does not own. */
typedef struct flashdma_bwd_device {
  int32_t compute_capability;      /**< 10 * major + minor */
  int32_t sm_count;                /**< streaming multiprocessors */
  int32_t shared_memory_per_block; /**< bytes a CTA may opt in to */
} flashdma_bwd_device;

FLASHDMA_BWD_API const char* flashdma_bwd_version(void); /**< "major.minor.patch" */
FLASHDMA_BWD_API const char* flashdma_bwd_table_hash(
    void); /**< 16 hexadecimal digits of the tables that were compiled in */
/** Such as "invalid argument"; "unknown code" for a number that is none. Never NULL. */
FLASHDMA_BWD_API const char* flashdma_bwd_code_name(flashdma_bwd_code code);
/** What went wrong in this thread's last call of a function that returns a flashdma_bwd_code, where, and what to do;
 * empty where it succeeded. Valid until this thread's next such call. */
FLASHDMA_BWD_API const char* flashdma_bwd_last_message(void);

/** Sets struct_size, and all other fields to what they mean where a caller has nothing to say: 0, NULL, no window. */
FLASHDMA_BWD_API void flashdma_bwd_arguments_init(flashdma_bwd_arguments* arguments);

/** Bytes of device memory that flashdma_bwd_backward needs for these arguments, on the current device. Of pointers only
 * the presence matters; give all else as in the call, strides, too, since those of 0 broadcast a mask, which then takes
 * less. Ask again after flashdma_bwd_set_tuning.
 * \return FLASHDMA_BWD_OK, INVALID_ARGUMENT, UNSUPPORTED, UNSUPPORTED_ARCHITECTURE, NOT_COMPILED, OVERRIDE_ERROR or
 * CUDA_ERROR. */
FLASHDMA_BWD_API flashdma_bwd_code flashdma_bwd_workspace_size(const flashdma_bwd_arguments* arguments, size_t* bytes);

/** Enqueues the backward on `stream`. workspace: device memory, 256-byte aligned, its contents do not matter.
 * Capturable in a CUDA graph once flashdma_bwd_prepare has loaded the kernels. \return as flashdma_bwd_workspace_size,
 * or WORKSPACE_TOO_SMALL; then nothing has been enqueued, but after a CUDA_ERROR of a launch, which the message names.
 */
FLASHDMA_BWD_API flashdma_bwd_code flashdma_bwd_backward(const flashdma_bwd_arguments* arguments, void* workspace,
                                                         size_t workspace_bytes, flashdma_bwd_stream stream);

/** Loads the kernels that these arguments select into the current context, so that the first backward is as fast as the
 * next.
 * \return as flashdma_bwd_workspace_size. */
FLASHDMA_BWD_API flashdma_bwd_code flashdma_bwd_prepare(const flashdma_bwd_arguments* arguments);

/** The CPU backend: the same arguments in host memory, in double precision, on `threads` threads (0: all). Never chosen
 * silently.
 * \return FLASHDMA_BWD_OK, INVALID_ARGUMENT or UNSUPPORTED. */
FLASHDMA_BWD_API flashdma_bwd_code flashdma_bwd_backward_reference(const flashdma_bwd_arguments* arguments,
                                                                   int32_t threads);

/** Device bytes of the plan of arguments->mask. With Q = 128 ceil(seqlen_q / 128) queries and K = 128 ceil(seqlen_k /
 * 128) keys, each of the batch x heads masks has
 *
 *     natural      Q K / 8 + Q K / 4096: a bit a pair, and a byte for every 64 x 64
 *     compacted    4 seqlen_k + 4
 *     reordered    Q K / 4 + 3 Q K / 8192 + 28 seqlen_k + K / 4 + 144: two bits a pair, of which one, and 16 bytes a
 *                  key, are only needed while the plan is built
 *
 * and one of lists of keys K / 8 more, only needed then. The parts begin at multiples of 256 bytes.
 * \return FLASHDMA_BWD_OK, INVALID_ARGUMENT or UNSUPPORTED. */
FLASHDMA_BWD_API flashdma_bwd_code flashdma_bwd_plan_size(const flashdma_bwd_arguments* arguments, size_t* bytes);
/** Enqueues the building of a plan in `memory` (256-byte aligned; may be NULL where 0 bytes are needed) and fills
 * *plan, which may be used at once by work on the same stream, and on others when they have waited for an event behind
 * the building. \return as flashdma_bwd_plan_size, or WORKSPACE_TOO_SMALL, CUDA_ERROR or UNSUPPORTED_ARCHITECTURE. */
FLASHDMA_BWD_API flashdma_bwd_code flashdma_bwd_plan_build(const flashdma_bwd_arguments* arguments, void* memory,
                                                           size_t bytes, flashdma_bwd_stream stream,
                                                           flashdma_bwd_mask_plan* plan);
/** Where a plan's parts lie, and of which extents they are. Reads the struct alone: needs no GPU and no stream.
 * \return FLASHDMA_BWD_OK or INVALID_ARGUMENT. */
FLASHDMA_BWD_API flashdma_bwd_code flashdma_bwd_plan_view(const flashdma_bwd_mask_plan* plan,
                                                          flashdma_bwd_plan_parts* parts);
/** The tiles that a reordered plan promises. `orders`: a copy in host memory of the plan's orders, the first batch x
 * heads x sizeof(flashdma_bwd_key_order) bytes of plan->memory, made when the building has run.
 * \return FLASHDMA_BWD_OK, INVALID_ARGUMENT, also of orders that no plan of this shape has, or UNSUPPORTED of a plan
 * that is not reordered, which counts no tiles. */
FLASHDMA_BWD_API flashdma_bwd_code flashdma_bwd_plan_summarize(const flashdma_bwd_mask_plan* plan,
                                                               const flashdma_bwd_key_order* orders,
                                                               flashdma_bwd_plan_summary* summary);

/** Device bytes of the schedule of a call with arguments->plan: 4 for each tile of keys and tile of queries of batch x
 * the plan's heads, beside which the others are few: some 50 for each item, a tile of keys of heads that share it, and
 * some 400 for each CTA that runs at once. Sequences must be of fixed length, and the call not deterministic. Arguments
 * as in the call, but for the schedule. Ask again after flashdma_bwd_set_tuning.
 * \return as flashdma_bwd_workspace_size. */
FLASHDMA_BWD_API flashdma_bwd_code flashdma_bwd_schedule_size(const flashdma_bwd_arguments* arguments, size_t* bytes);
/** Enqueues the building of a schedule in `memory` (256-byte aligned; may be NULL where 0 bytes are needed) and fills
 * *schedule, which may be used at once by work on the same stream, and on others when they have waited for an event
 * behind the building. A plan that is built anew needs a new one; both can be captured in a graph. \return as
 * flashdma_bwd_workspace_size, or WORKSPACE_TOO_SMALL. */
FLASHDMA_BWD_API flashdma_bwd_code flashdma_bwd_schedule_build(const flashdma_bwd_arguments* arguments, void* memory,
                                                               size_t bytes, flashdma_bwd_stream stream,
                                                               flashdma_bwd_schedule* schedule);

/** What would run on the current device (device == NULL) or on another.
 * \return as flashdma_bwd_workspace_size. */
FLASHDMA_BWD_API flashdma_bwd_code flashdma_bwd_select(const flashdma_bwd_arguments* arguments,
                                                       const flashdma_bwd_device* device,
                                                       flashdma_bwd_selection* selection);
/** Writes why, as text: which layout a mask's plan has and by which rule, and every candidate row with the condition
 * that failed; of arguments that no backward would take, what is wrong with them, but for the addresses and strides of
 * tensors, which are not looked at. Returns the length without the final NUL, like snprintf. */
FLASHDMA_BWD_API size_t flashdma_bwd_explain(const flashdma_bwd_arguments* arguments, const flashdma_bwd_device* device,
                                             char* text, size_t capacity);

/** Learning which kernel is the fastest. The library's tables were measured on some GPUs and problems; a program may
 * have the library measure its own, and keep what it learned in a file, the cache. The key of a choice is what the
 * tables go by: data type, head dim, batch, heads, lengths, bias, mask with its layout and density, causality, the
 * width of a window, softcap and determinism, and whether a tile bias and its gradient can be moved by copies, which
 * their addresses and strides decide (flashdma_bwd_pair_tensor). It does not matter whether sequences are packed, or
 * whether a gradient of another bias is asked for.
 *
 * arguments.kernel or a schedule's, FLASHDMA_BWD_KERNEL, FLASHDMA_BWD_ARCH and rows of FLASHDMA_BWD_TABLE go before the
 * cache, and FLASHDMA_BWD_FLAG_TABLE_ONLY goes without it. flashdma_bwd_select and flashdma_bwd_explain say when it
 * decided, and by which line. */
typedef enum flashdma_bwd_tune_mode {
  /** The tables decide. What costs nothing else: a backward reads one word, with a relaxed atomic load. */
  FLASHDMA_BWD_TUNE_OFF = 0,
  /** The first backward with a problem that has no choice yet measures the compiled kernels that serve it: it runs them
   * on its stream, for budget_ms or little more, and waits for them. The outputs are written each time, so they must
   * not share memory with the inputs. Then the fastest runs, now and from then on; the table's choice where no other
   * is faster beyond the noise. Kernels that the budget or the workspace given has no room for are not chosen.
   * flashdma_bwd_workspace_size is enough for any of them.
   *
   * Nothing is measured on a stream that captures: the table decides there, and the log says so once. Nothing is
   * measured while another thread measures: that call runs the table's choice and a later one measures. */
  FLASHDMA_BWD_TUNE_FIRST_USE = 1,
  /** Choices come from the cache as it was when it was read, or from the tables. Nothing is measured or written. */
  FLASHDMA_BWD_TUNE_READ_ONLY = 2
} flashdma_bwd_tune_mode;

typedef struct flashdma_bwd_tuning {
  uint32_t struct_size; /**< set by flashdma_bwd_tuning_init */
  int32_t mode;         /**< flashdma_bwd_tune_mode */
  /** The cache's file, which is read once, here. NULL or empty: choices are in memory only, and READ_ONLY is refused.
   * Any number of processes may share it: a measurement adds a line to it at once, in place of nothing. Records of
   * another kind of GPU, of other tables or of another toolkit are passed over and stay, as do damaged lines; a warning
   * in the log names the first. Where the file cannot be written a warning says so and choices stay in memory. */
  const char* cache;
  double budget_ms; /**< of the measurement of one problem, on the host's clock; 0: 1000. The table's choice is measured
                       in any case, and what is running is not interrupted. Then the choice is added to the file, for
                       which the call waits up to 5 s while another process holds its lock */
  const char* hash; /**< NULL, or the hash that the cache must have for the GPU of each call, see
                       flashdma_bwd_tuning_state; with another, calls are refused. The cache is frozen then */
} flashdma_bwd_tuning;

/** What the cache has for one kind of GPU. */
typedef struct flashdma_bwd_tuning_state {
  uint32_t struct_size; /**< set it to sizeof(flashdma_bwd_tuning_state) */
  int32_t mode;         /**< flashdma_bwd_tune_mode */
  int32_t frozen;       /**< 1: nothing is measured or written any more */
  int32_t unsaved;      /**< choices that are in memory only because the file could not be written */
  int64_t choices;      /**< problems that have one */
  /** Empty with FLASHDMA_BWD_TUNE_OFF, else 16 hexadecimal digits, of the problems and their kernels in whatever order,
   * and of the kind of GPU. Processes with the same hash run the same kernels. */
  char hash[24];
} flashdma_bwd_tuning_state;

/** Sets struct_size and all other fields to 0 or NULL: FLASHDMA_BWD_TUNE_OFF. */
FLASHDMA_BWD_API void flashdma_bwd_tuning_init(flashdma_bwd_tuning* tuning);

/** Replaces what the environment (FLASHDMA_BWD_TUNE_MODE=off|first_use|read_only, FLASHDMA_BWD_TUNE_CACHE,
 * FLASHDMA_BWD_TUNE_BUDGET_MS, FLASHDMA_BWD_TUNE_HASH) or an earlier call has set, for the calls of all threads that
 * begin from now on; choices in memory that were not saved are forgotten. Ask for the workspace's size again after it.
 * \return FLASHDMA_BWD_OK, INVALID_ARGUMENT, or OVERRIDE_ERROR: the file cannot be read or is no cache. After an error
 * nothing has changed. */
FLASHDMA_BWD_API flashdma_bwd_code flashdma_bwd_set_tuning(const flashdma_bwd_tuning* tuning);

/** No more measurements, and no more writing after what is still unsaved: from now on choices are what they are. The
 * ranks of one job do this after some steps and compare their hashes, or all read one finished file from the start:
 *
 *     if (flashdma_bwd_freeze_tuning() != FLASHDMA_BWD_OK) return fail(flashdma_bwd_last_message());
 *     flashdma_bwd_tuning_state state = {.struct_size = sizeof state};
 *     if (flashdma_bwd_get_tuning(NULL, &state) != FLASHDMA_BWD_OK) return fail(flashdma_bwd_last_message());
 *     if (!same_on_all_ranks(state.hash)) flashdma_bwd_set_tuning(&off);     with one answer for all ranks
 *
 * A deterministic problem (FLASHDMA_BWD_FLAG_DETERMINISTIC) must have the same kernel on every run, and a file may have
 * got more lines since the last: it is measured like any other, but its choice is used only where tuning.hash or
 * FLASHDMA_BWD_TUNE_HASH has said which choices the cache must have. Until then the table decides.
 * \return FLASHDMA_BWD_OK, or OVERRIDE_ERROR where what the environment asks for cannot be honoured. */
FLASHDMA_BWD_API flashdma_bwd_code flashdma_bwd_freeze_tuning(void);

/** The state for the current device (device == NULL) or another.
 * \return FLASHDMA_BWD_OK, INVALID_ARGUMENT, OVERRIDE_ERROR, or UNSUPPORTED_ARCHITECTURE or CUDA_ERROR of asking for
 * the current device. */
FLASHDMA_BWD_API flashdma_bwd_code flashdma_bwd_get_tuning(const flashdma_bwd_device* device,
                                                           flashdma_bwd_tuning_state* state);

/** The compiled kernels: canonical names in sorted order, NULL past the end. */
FLASHDMA_BWD_API size_t flashdma_bwd_kernel_count(void);
FLASHDMA_BWD_API const char* flashdma_bwd_kernel_name(size_t index);
/** The compiled sets, "sm80", ..., and the PTX that newer GPUs use, "compute_80"; NULL past the end. */
FLASHDMA_BWD_API const char* flashdma_bwd_architecture_name(size_t index);

/** What ran. All of this is off unless it is asked for, and a backward then reads one word, with a relaxed atomic load.
 * Calls that are refused, and those without an output element, launch nothing and are neither reported nor counted. A
 * backward that is captured in a CUDA graph is one call; replaying the graph is none.
 *
 * FLASHDMA_BWD_CAPTURE=<file> in the environment appends each distinct problem of the process's backwards, once, to a
 * problem file; many processes may append to one. A call then takes a lock and looks its problem up; what is seen for
 * the first time is written. A file that cannot be written gets one warning, see FLASHDMA_BWD_LOG, and fails no
 * backward.
 *
 * `flashdma-bench monitoring` shows what each of it costs. */

/** What a hook is told of a backward. The text of the problem is valid until the hook returns, the other strings are
 * for the library's lifetime. Later versions of the library may add fields at the end. */
typedef struct flashdma_bwd_call_report {
  uint32_t struct_size;   /**< the library's */
  int32_t code;           /**< flashdma_bwd_code; FLASHDMA_BWD_OK before the launch */
  const char* problem;    /**< such as "bf16 d=128 b=1 h=16 hk=4 sq=8192 sk=8192 causal", a line of a problem file */
  uint64_t tag;           /**< of the arguments */
  const char* kernel;     /**< canonical name of the configuration */
  const char* row_file;   /**< the table; or what named the kernel: "arguments.kernel", "arguments.schedule",
                             "FLASHDMA_BWD_KERNEL"; or the cache of measured choices, "first use" for a choice that is
                             in memory only */
  int32_t row_line;       /**< of row_file; 0 where that has no lines */
  int32_t tier;           /**< as in flashdma_bwd_selection */
  size_t workspace_bytes; /**< that the call needs */
  flashdma_bwd_stream stream;
  int32_t launches; /**< kernels that were enqueued; 0 before the launch. Clearing memory is none */
} flashdma_bwd_call_report;

/** Runs in the thread that calls flashdma_bwd_backward, in several threads at once where several call it. It must
 * return, not throw, and wait for no thread that sets hooks. It may enqueue work on the stream, and call the library:
 * the backwards that it calls itself are not reported. For calls that have hooks a lock is shared, and the problem's
 * text is written; nothing is allocated. */
typedef void (*flashdma_bwd_hook)(const flashdma_bwd_call_report* report, void* user);

typedef struct flashdma_bwd_hooks {
  uint32_t struct_size;     /**< sizeof(flashdma_bwd_hooks) */
  flashdma_bwd_hook before; /**< its launch; NULL: none */
  flashdma_bwd_hook after;  /**< its launch, not its kernels, which may still run; NULL: none */
  void* user;               /**< given to both */
} flashdma_bwd_hooks;

/** Replaces the process's hooks; NULL: there are none any more. Safe while other threads launch: a call has both its
 * hooks from one setting, or none if it began while this function ran. When this function returns, no hook that was set
 * before runs any more, and what `user` pointed to may be freed. A hook itself cannot set hooks.
 * \return FLASHDMA_BWD_OK or INVALID_ARGUMENT. */
FLASHDMA_BWD_API flashdma_bwd_code flashdma_bwd_set_hooks(const flashdma_bwd_hooks* hooks);

/** What is monitored beside hooks. */
/** An NVTX range for each backward, in the domain "flashdma_bwd", named by the configuration's canonical name.
 * FLASHDMA_BWD_NVTX=1 in the environment switches it on from the start. */
#define FLASHDMA_BWD_MONITOR_NVTX 1u
/** Calls are counted, see flashdma_bwd_counters: two relaxed atomic additions a call, no lock, no allocation. */
#define FLASHDMA_BWD_MONITOR_COUNTERS 2u
/** Calls are counted and timed, by two CUDA events that are recorded into the call's stream; nothing waits for them. A
 * call asks whether up to four earlier ones are finished, under a lock that it shares with other threads. The events,
 * for 512 calls in flight, are created when this flag is set, for the device that is current then: set it again with
 * another current device to time calls there, too. A call is not timed while its stream is captured, while all events
 * are in flight, on a device without events, and where CUDA refuses to record them. */
#define FLASHDMA_BWD_MONITOR_TIMING 4u

/** Sets what is monitored to `flags`, for calls that begin from now on. A failure changes nothing.
 * \return FLASHDMA_BWD_OK, INVALID_ARGUMENT for unknown flags, and for timing CUDA_ERROR where the events cannot be
 * made, UNSUPPORTED_ARCHITECTURE without a device and UNSUPPORTED for a device's number of 64 or more. */
FLASHDMA_BWD_API flashdma_bwd_code flashdma_bwd_set_monitoring(uint32_t flags);
/** The flags that are set. FLASHDMA_BWD_MONITOR_TIMING sets FLASHDMA_BWD_MONITOR_COUNTERS, too. */
FLASHDMA_BWD_API uint32_t flashdma_bwd_monitoring(void);

#define FLASHDMA_BWD_TIERS 4 /**< 0, 1, ... of flashdma_bwd_selection.tier */

/** Since counters were first switched on, or reset. Calls are those whose kernels were all enqueued. Where other
 * threads launch meanwhile, a call may be in some of the numbers and not yet in others. */
typedef struct flashdma_bwd_counters {
  uint32_t struct_size;                    /**< sizeof(flashdma_bwd_counters), set by the caller */
  uint32_t reserved;                       /**< 0 */
  uint64_t calls;                          /**< while FLASHDMA_BWD_MONITOR_COUNTERS was set */
  uint64_t tier_calls[FLASHDMA_BWD_TIERS]; /**< of them, by tier: those from [1] on ran an older architecture's rows */
  uint64_t timed_calls;                    /**< of them, whose time is known */
  uint64_t unfinished_calls;               /**< of them, whose time will be known */
  uint64_t untimed_calls;                  /**< of them, that FLASHDMA_BWD_MONITOR_TIMING could not time */
  double milliseconds;   /**< of the timed calls: from when the stream came to the call until its end */
  uint64_t cache_hits;   /**< of them, for which the cache of measured choices decided */
  uint64_t cache_misses; /**< of them, that asked it in vain, the first uses that measured among them */
} flashdma_bwd_counters;

/** The same of one configuration. */
typedef struct flashdma_bwd_kernel_counters {
  uint32_t struct_size; /**< sizeof(flashdma_bwd_kernel_counters), set by the caller */
  uint32_t reserved;    /**< 0 */
  uint64_t calls;
  uint64_t timed_calls;
  double milliseconds;
} flashdma_bwd_kernel_counters;

/** Looks which timed calls are finished, without waiting for any, and fills *counters.
 * \return FLASHDMA_BWD_OK or INVALID_ARGUMENT. */
FLASHDMA_BWD_API flashdma_bwd_code flashdma_bwd_read_counters(flashdma_bwd_counters* counters);
/** The same for the kernel of flashdma_bwd_kernel_name(index), with the times that calls and flashdma_bwd_read_counters
 * have found.
 * \return FLASHDMA_BWD_OK or INVALID_ARGUMENT. */
FLASHDMA_BWD_API flashdma_bwd_code flashdma_bwd_read_kernel_counters(size_t index,
                                                                     flashdma_bwd_kernel_counters* counters);
/** Sets all counters to 0. Calls that are still being timed will not be in them.
 * \return FLASHDMA_BWD_OK. */
FLASHDMA_BWD_API flashdma_bwd_code flashdma_bwd_reset_counters(void);

#ifdef __cplusplus
}
#endif
#endif
