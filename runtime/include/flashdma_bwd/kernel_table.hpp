// The vocabulary of kernel selection: problem, device, kernel configuration and table row.
//
// This is the one key type of the project. The offline generator, the library and a tuner all include this header, so
// that the key a configuration was tuned for, the key of its table row and the key of a call are the same by
// construction. Everything here is plain constexpr data; nothing needs CUDA.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string_view>

namespace flashdma_bwd {

/// A table and a set of compiled kernels. `sm80` names compute capability 8.0 and so on.
enum class Architecture : std::uint8_t { sm80, sm86, sm89, sm90 };
inline constexpr Architecture kArchitectures[] = {Architecture::sm80, Architecture::sm86, Architecture::sm89,
                                                  Architecture::sm90};

/// The hand-written kernel that a configuration parametrises.
enum class KernelFamily : std::uint8_t {
  ampere,  ///< mma.sync, ldmatrix, cp.async: any compute capability from 8.0
  hopper,  ///< wgmma, TMA, setmaxnreg, warp-specialised: compute capability 9.0 only
};

/// Element type of Q, K, V, O, dO and of the gradients.
enum class DataType : std::uint8_t { fp16, bf16 };
inline constexpr DataType kDataTypes[] = {DataType::fp16, DataType::bf16};

/// How the additive bias reaches a score tile.
enum class BiasKind : std::uint8_t {
  none,
  key_vector,  ///< one value per key, the same for all queries of a (batch, head): [b|1, h|h_kv|1, 1, sk]
  tile,        ///< anything else: one value per (query, key), or per query
};
inline constexpr BiasKind kBiasKinds[] = {BiasKind::none, BiasKind::key_vector, BiasKind::tile};

/// Order in which a mask plan presents the keys to the kernel.
enum class KeyLayout : std::uint8_t {
  natural,    ///< neighbouring keys share a tile
  compacted,  ///< only the active keys, in order: the mask is the same for all queries of a (batch, head)
  reordered,  ///< only the active keys, those with alike queries in a tile
};
inline constexpr KeyLayout kKeyLayouts[] = {KeyLayout::natural, KeyLayout::compacted, KeyLayout::reordered};

/// Head dimensions that kernels are instantiated for. A head dim d runs in the smallest bucket >= d, zero-padded.
inline constexpr int kHeadDimBuckets[] = {32, 64, 96, 128, 192, 256};
inline constexpr int kMaxHeadDim = 256;

/// The smallest bucket that holds `head_dim`, or 0 if none does.
constexpr int head_dim_bucket(int head_dim) {
  for (int bucket : kHeadDimBuckets)
    if (head_dim <= bucket) return bucket;
  return 0;
}

/// The tunable part of a configuration: what a table row chooses. All counts are per CTA.
/// Work of one step: a tile of block_m queries x block_n keys. Fields of the other family are 0.
struct TileConfig {
  KernelFamily family = KernelFamily::ampere;
  int block_m = 0;  ///< queries of a tile
  int block_n = 0;  ///< keys of a tile; the CTA keeps them for all its query tiles

  // Ampere family.
  int warps = 0;          ///< warps of 32 threads
  int score_warps_m = 0;  ///< warps along the queries in S = QK^T and dP = dO V^T; the others lie along the keys
  int dkv_warps_n = 0;    ///< warps along the keys in dV = P^T dO and dK = dS^T Q; the others lie along the head dim
  int dq_warps_m = 0;     ///< warps along the queries in dQ = dS K; the others lie along the head dim

  // Both families.
  int q_stages = 0;   ///< shared-memory buffers of Q (1 or 2; Hopper: 2 or 3)
  int do_stages = 0;  ///< shared-memory buffers of dO (as q_stages; with cta_pair or 96 keys 1, too)

  // Ampere family.
  bool value_in_registers = false;  ///< V's fragments stay in registers; its shared memory is Q's and dO's

  // Hopper family: one producer warpgroup of 128 threads and these that compute.
  int consumer_warpgroups = 0;
  int ds_stages = 0;           ///< shared-memory buffers of dS (2 or 4; cta_pair: 2; 96 keys: 1 or 2)
  int producer_registers = 0;  ///< a thread's, after setmaxnreg; multiples of 8
  int consumer_registers = 0;
  bool cta_pair = false;           ///< the two CTAs of a cluster share the keys of a tile, half each
  bool several_items = false;      ///< a CTA takes one tile of keys after the other, with room for the next one's K
  bool skip_empty_halves = false;  ///< a warpgroup leaves out a step that has no active pair of its half of the keys,
                                   ///< by the mask's list or by the limits

  friend constexpr bool operator==(const TileConfig&, const TileConfig&) = default;
  friend constexpr auto operator<=>(const TileConfig&, const TileConfig&) = default;
};

/// One kernel instantiation. A structural type: it is the template argument of the kernel, and its canonical name
/// (`configuration_name`) is its identity in files, symbols, logs, overrides and benchmarks.
struct KernelConfig {
  Architecture architecture = Architecture::sm80;
  int head_dim = 0;  ///< a bucket
  DataType data_type = DataType::fp16;
  BiasKind bias = BiasKind::none;
  bool softcap = false;
  TileConfig tile;

  friend constexpr bool operator==(const KernelConfig&, const KernelConfig&) = default;
  friend constexpr auto operator<=>(const KernelConfig&, const KernelConfig&) = default;
};

/// Whether a kernel moves a tile bias by tensor copies, and its gradient where that has an element for each pair, in
/// the problem's type. It serves the problems with `bias_copies`, which have neighbouring keys.
constexpr bool copies_bias(KernelFamily family, BiasKind bias) {
  return family == KernelFamily::hopper && bias == BiasKind::tile;
}

/// What selection knows about a GPU. Never its marketing name.
struct DeviceTraits {
  int compute_capability = 0;       ///< 10 * major + minor
  int sm_count = 0;                 ///< streaming multiprocessors
  int shared_memory_per_block = 0;  ///< bytes a CTA may opt in to
  friend constexpr bool operator==(const DeviceTraits&, const DeviceTraits&) = default;
};

/// What selection knows about a call.
struct Problem {
  DataType data_type = DataType::bf16;
  int head_dim = 0;  ///< the caller's, not the bucket
  BiasKind bias = BiasKind::none;
  bool bias_copies = false;  ///< tensor copies can move the tiles of a tile bias and of its gradient
  bool softcap = false;
  bool causal = false;  ///< causal or any window
  bool deterministic = false;
  bool masked = false;
  KeyLayout layout = KeyLayout::natural;
  int mask_density = 1000;  ///< active pairs per 1000 pairs that the limits leave; the caller's estimate, 1000 if none
  std::int64_t batch = 0;
  std::int64_t heads = 0;
  std::int64_t heads_kv = 0;
  std::int64_t seqlen_q = 0;  ///< the longest sequence's
  std::int64_t seqlen_k = 0;  ///< the longest sequence's
  /// Queries that see a key at most, where there is no mask and limits on both sides leave fewer than all; else 0.
  std::int64_t window = 0;
  friend constexpr bool operator==(const Problem&, const Problem&) = default;
};

/// The most queries that see a key: how far a kernel walks with it, which is what rows ask of `seqlen_q`.
constexpr std::int64_t queries_of_key(const Problem& problem) {
  return problem.window > 0 && problem.window < problem.seqlen_q ? problem.window : problem.seqlen_q;
}

/// Keys of the unit in which `work_items_per_sm` counts; independent of the tile that is being chosen.
inline constexpr int kWorkItemKeys = 128;

/// floor(batch * heads * ceil(seqlen_k / 128) / sm_count): how well the problem fills this GPU.
constexpr std::int64_t work_items_per_sm(const Problem& problem, const DeviceTraits& device) {
  const std::int64_t tiles = (problem.seqlen_k + kWorkItemKeys - 1) / kWorkItemKeys;
  return problem.batch * problem.heads * tiles / (device.sm_count > 0 ? device.sm_count : 1);
}

/// Closed interval of integers.
struct Range {
  std::int64_t low = 0;
  std::int64_t high = std::numeric_limits<std::int64_t>::max();
  constexpr bool contains(std::int64_t value) const { return low <= value && value <= high; }
  constexpr bool contains(const Range& other) const { return low <= other.low && other.high <= high; }
  friend constexpr bool operator==(const Range&, const Range&) = default;
};

/// A predicate on a boolean property.
enum class Choice : std::uint8_t { any, no, yes };
constexpr bool admits(Choice choice, bool value) {
  return choice == Choice::any || (choice == Choice::yes) == value;
}

/// A set of enumerators, one bit each.
template <class Enum>
struct EnumSet {
  std::uint32_t bits = ~std::uint32_t{0};
  constexpr bool contains(Enum value) const { return (bits >> static_cast<unsigned>(value) & 1u) != 0; }
  friend constexpr bool operator==(const EnumSet&, const EnumSet&) = default;
};

/// The condition of a table row: all of its parts must hold. Left-out parts admit everything.
struct When {
  int head_dim = 0;  ///< a bucket; always given
  EnumSet<DataType> data_types{};
  EnumSet<BiasKind> biases{};
  EnumSet<KeyLayout> layouts{};
  Choice bias_copies = Choice::any;
  Choice softcap = Choice::any;
  Choice causal = Choice::any;
  Choice deterministic = Choice::any;
  Choice masked = Choice::any;
  Range seqlen_q{};
  Range seqlen_k{};
  Range work_items_per_sm{};
  Range mask_density{0, 1000};

  friend constexpr bool operator==(const When&, const When&) = default;
};

/// Where a row's choice comes from.
enum class ProvenanceKind : std::uint8_t {
  derived,   ///< by reasoning, another architecture's row, or a few timings that the text gives; no tuner has chosen it
  measured,  ///< timed on this architecture, against the candidates that the tuner had
};

/// One line of a table: the first row of an architecture whose condition holds decides.
struct Row {
  Architecture architecture = Architecture::sm80;
  When when;
  TileConfig use;
  ProvenanceKind provenance = ProvenanceKind::derived;
  std::string_view provenance_text;
  std::string_view file;  ///< path of the YAML table, relative to the repository's root
  int line = 0;           ///< 1-based line of the row in that file
};

}  // namespace flashdma_bwd
