// Problems as text, and the named sets. See problem.hpp.
#include "problem.hpp"

#include <charconv>
#include <iterator>
#include <sstream>
#include <stdexcept>

#include "active_pairs.hpp"

namespace flashdma_bwd::bench {
namespace {

template <class Number>
bool read_number(std::string_view text, Number& value) {
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  return code == std::errc() && end == text.data() + text.size();
}

bool read_count(std::string_view text, std::int64_t& value) {
  return read_number(text, value) && value > 0;
}

bool read_bias(std::string_view text, Problem& problem) {
  if (text == "none")
    problem.bias = BiasShape::none;
  else if (text == "key")
    problem.bias = BiasShape::key;
  else if (text == "tile")
    problem.bias = BiasShape::tile;
  else
    return false;
  return true;
}

bool read_mask(std::string_view text, Problem& problem) {
  const std::size_t colon = text.find(':');
  const std::string_view kind = text.substr(0, colon);
  const std::string_view amount = colon == std::string_view::npos ? std::string_view() : text.substr(colon + 1);
  if (kind == "topw") {
    problem.mask = MaskShape::top_w;
    return read_count(amount, problem.top_w);
  }
  if (kind == "window" || kind == "documents") {
    problem.mask = kind == "window" ? MaskShape::window : MaskShape::documents;
    return read_count(amount, problem.width);
  }
  if (kind == "random" || kind == "keys" || kind == "blocks") {
    problem.mask = kind == "keys" ? MaskShape::keys : kind == "blocks" ? MaskShape::blocks : MaskShape::random;
    return read_number(amount, problem.keep_probability) && problem.keep_probability >= 0 &&
           problem.keep_probability <= 1;
  }
  problem.mask = MaskShape::none;
  return text == "none";
}

// Words in the order of MaskEncoding.
constexpr std::string_view kEncodingWords[] = {"bytes", "bits", "keys", "intervals", "blocks"};

bool read_encoding(std::string_view text, Problem& problem) {
  for (std::size_t i = 0; i < std::size(kEncodingWords); ++i)
    if (text == kEncodingWords[i]) return problem.encoding = static_cast<MaskEncoding>(i), true;
  return false;
}

bool expresses(MaskEncoding encoding, MaskShape mask) {
  switch (encoding) {
    case MaskEncoding::keys:
      return mask == MaskShape::keys;
    case MaskEncoding::intervals:
      return mask == MaskShape::top_w || mask == MaskShape::window || mask == MaskShape::documents;
    case MaskEncoding::blocks:
      return mask == MaskShape::blocks;
    case MaskEncoding::bits:
      return mask != MaskShape::none;
    case MaskEncoding::bytes:
      break;
  }
  return true;
}

// One word of the text form.
bool read_word(std::string_view word, Problem& problem) {
  if (word == "causal") return problem.causal = true;
  if (word == "deterministic") return problem.deterministic = true;
  if (word == "packed") return problem.packed = true;
  if (word == "bf16") return problem.bf16 = true;
  if (word == "fp16") return problem.bf16 = false, true;
  const std::size_t equals = word.find('=');
  if (equals == std::string_view::npos) return false;
  const std::string_view key = word.substr(0, equals);
  const std::string_view value = word.substr(equals + 1);
  if (key == "b") return read_count(value, problem.batch);
  if (key == "h") return read_count(value, problem.heads);
  if (key == "hk") return read_count(value, problem.heads_kv);
  if (key == "d") return read_count(value, problem.head_dim);
  if (key == "s" || key == "sq") return read_count(value, problem.seqlen_q);
  if (key == "sk") return read_count(value, problem.seqlen_k);
  if (key == "window") return read_count(value, problem.window);
  if (key == "softcap") return read_number(value, problem.softcap) && problem.softcap >= 0;
  if (key == "bias") return read_bias(value, problem);
  if (key == "mask") return read_mask(value, problem);
  if (key == "encoding") return read_encoding(value, problem);
  return false;
}

Problem parsed(const std::string& text) {
  Problem problem;
  std::string error;
  if (!parse_problem(text, problem, error)) throw std::logic_error(text + ": " + error);
  return problem;
}

// Each feature beside the same problem without it, which stands before it.
std::vector<Problem> feature_problems() {
  std::vector<Problem> problems;
  for (const char* causal : {"", " causal"})
    for (const char* size : {"b=2 h=32 d=64 s=8192", "b=2 h=21 d=96 s=8192", "b=2 h=16 d=128 s=8192",
                             "b=2 h=11 d=192 s=8192", "b=2 h=8 d=256 s=8192"})
      for (const char* feature : {"", " fp16", " bias=key", " bias=tile", " softcap=30", " softcap=30 bias=key",
                                  " softcap=30 bias=tile", " deterministic"})
        problems.push_back(parsed(std::string(size) + causal + feature));
  for (const char* text :
       {"b=4 h=32 d=128 s=2048 causal", "b=4 h=32 hk=8 d=128 s=2048 causal", "b=8 h=16 d=128 s=2048",
        "b=8 h=16 d=128 s=2048 packed", "b=8 h=16 d=128 s=2048 causal", "b=8 h=16 d=128 s=2048 causal packed"})
    problems.push_back(parsed(text));
  // A tile bias of each head, and one that the heads of a KV head share.
  for (const char* causal : {"", " causal"})
    for (const char* size : {"d=64", "d=128"})
      for (const char* heads : {"b=1 h=16 ", "b=1 h=16 hk=4 "})
        problems.push_back(parsed(std::string(heads) + size + " s=4096" + causal + " bias=tile"));
  return problems;
}

// Masks that help by structure, ones that do not, and windows, beside the same problem without any.
std::vector<Problem> sparse_problems() {
  std::vector<Problem> problems;
  for (const char* mask :
       {"", " mask=random:1", " mask=random:0.5", " causal", " causal mask=random:1", " causal mask=random:0.5"})
    problems.push_back(parsed("b=1 h=16 hk=4 d=128 s=8192" + std::string(mask)));
  // Eight key tiles to an SM of the GPUs that there are.
  for (const char* mask : {"", " causal", " causal window=512", " causal window=1024", " causal mask=window:512",
                           " mask=documents:1024", " mask=blocks:0.1", " mask=blocks:0.02"})
    problems.push_back(parsed("b=2 h=16 d=128 s=4096" + std::string(mask)));
  const std::string long_size = "b=1 h=16 hk=4 d=128 s=16384";
  problems.push_back(parsed(long_size));
  for (const char* kept : {"0.03125", "0.125", "0.5", "1"})  // of 16384 keys 512, 2048, 8192 and all
    problems.push_back(parsed(long_size + " mask=keys:" + kept));
  return problems;
}

// Top-w masks of ever fewer pairs, and no mask.
std::vector<Problem> density_problems() {
  std::vector<Problem> problems;
  for (const char* size : {"b=1 h=16 hk=4 d=128 s=8192", "b=1 h=2 hk=1 d=64 s=32768"}) {
    const std::string text = std::string(size) + " causal bias=key";
    problems.push_back(parsed(text));
    const bool longer = text.find("s=32768") != std::string::npos;
    for (const int w : longer ? std::vector{16384, 4096, 1024, 256} : std::vector{4096, 2048, 1024, 512, 256, 64})
      problems.push_back(parsed(text + " mask=topw:" + std::to_string(w)));
  }
  return problems;
}

Problem causal_or_not(std::int64_t batch, std::int64_t heads, std::int64_t heads_kv, std::int64_t head_dim,
                      std::int64_t seqlen, bool causal) {
  Problem problem;
  problem.batch = batch;
  problem.heads = heads;
  problem.heads_kv = heads_kv;
  problem.head_dim = head_dim;
  problem.seqlen_q = problem.seqlen_k = seqlen;
  problem.causal = causal;
  return problem;
}

}  // namespace

double Problem::dense_flops() const {
  if (window > 0) return 10.0 * static_cast<double>(batch * heads * head_dim) * visible_pairs(*this);
  const double pairs =
      static_cast<double>(batch * heads) * static_cast<double>(seqlen_q) * static_cast<double>(seqlen_k);
  return 10.0 * pairs * static_cast<double>(head_dim) * (causal ? 0.5 : 1.0);
}

bool parse_problem(std::string_view text, Problem& problem, std::string& error) {
  problem = Problem();
  problem.heads_kv = problem.seqlen_k = 0;  // where they are not given: heads and seqlen_q
  std::istringstream words{std::string(text)};
  for (std::string word; words >> word;) {
    if (read_word(word, problem)) continue;
    error =
        "`" + word +
        "` is not part of a problem: expected b= h= hk= d= s= sq= sk= window= (counts), causal, deterministic, packed, "
        "fp16, bf16, "
        "softcap=, "
        "bias=none|key|tile, mask=none|topw:W|random:P|keys:P|window:W|documents:W|blocks:P, "
        "encoding=bytes|bits|keys|intervals|blocks";
    return false;
  }
  if (problem.heads_kv == 0) problem.heads_kv = problem.heads;
  if (problem.seqlen_k == 0) problem.seqlen_k = problem.seqlen_q;
  if (problem.heads % problem.heads_kv != 0) {
    error = "h=" + std::to_string(problem.heads) + " must be a multiple of hk=" + std::to_string(problem.heads_kv);
    return false;
  }
  if (problem.window > 0 && (!problem.causal || problem.mask != MaskShape::none)) {
    error = "window=" + std::to_string(problem.window) +
            " is a limit of causal problems without a mask: add causal, or give the mask as mask=window:" +
            std::to_string(problem.window);
    return false;
  }
  if (problem.window >= problem.seqlen_q) {
    error = "window=" + std::to_string(problem.window) + " leaves all of " + std::to_string(problem.seqlen_q) +
            " queries: leave it out";
    return false;
  }
  if (!expresses(problem.encoding, problem.mask)) {
    error = "encoding=" + std::string(kEncodingWords[static_cast<std::size_t>(problem.encoding)]) +
            " cannot express this mask: bits express any, keys mask=keys, intervals mask=topw, window and documents, "
            "blocks mask=blocks";
    return false;
  }
  return true;
}

std::string problem_text(const Problem& problem) {
  std::ostringstream text;
  text << "b=" << problem.batch << " h=" << problem.heads;
  if (problem.heads_kv != problem.heads) text << " hk=" << problem.heads_kv;
  text << " d=" << problem.head_dim;
  if (problem.seqlen_q == problem.seqlen_k)
    text << " s=" << problem.seqlen_q;
  else
    text << " sq=" << problem.seqlen_q << " sk=" << problem.seqlen_k;
  if (!problem.bf16) text << " fp16";
  if (problem.causal) text << " causal";
  if (problem.window > 0) text << " window=" << problem.window;
  if (problem.deterministic) text << " deterministic";
  if (problem.packed) text << " packed";
  if (problem.softcap > 0) text << " softcap=" << problem.softcap;
  if (problem.bias != BiasShape::none) text << (problem.bias == BiasShape::key ? " bias=key" : " bias=tile");
  if (problem.mask == MaskShape::top_w) text << " mask=topw:" << problem.top_w;
  if (problem.mask == MaskShape::random) text << " mask=random:" << problem.keep_probability;
  if (problem.mask == MaskShape::keys) text << " mask=keys:" << problem.keep_probability;
  if (problem.mask == MaskShape::window) text << " mask=window:" << problem.width;
  if (problem.mask == MaskShape::documents) text << " mask=documents:" << problem.width;
  if (problem.mask == MaskShape::blocks) text << " mask=blocks:" << problem.keep_probability;
  if (problem.encoding != MaskEncoding::bytes)
    text << " encoding=" << kEncodingWords[static_cast<std::size_t>(problem.encoding)];
  return text.str();
}

/// Masks of 256 MB and more, whose plan is a read of them: by chance, which no order of keys helps, a window, top-w.
std::vector<Problem> plan_problems() {
  std::vector<Problem> problems;
  for (const char* text : {"b=1 h=4 d=128 s=8192 mask=random:0.5", "b=1 h=1 d=128 s=16384 mask=random:0.5",
                           "b=1 h=1 d=64 s=32768 mask=random:0.5", "b=2 h=4 d=128 s=8192 mask=window:512",
                           "b=1 h=1 d=64 s=32768 causal bias=key mask=topw:1024"})
    problems.push_back(parsed(text));
  return problems;
}

std::vector<Problem> problem_set(std::string_view name) {
  std::vector<Problem> problems;
  if (name == "dense") {  // 16K tokens, h * d as near 2048 as it can be
    for (const int head_dim : {64, 96, 128, 192, 256})
      for (const int seqlen : {2048, 8192, 16384})
        for (const bool causal : {false, true}) {
          const int heads = (2048 + head_dim / 2) / head_dim;
          problems.push_back(causal_or_not(16384 / seqlen, heads, heads, head_dim, seqlen, causal));
        }
  } else if (name == "masked") {  // the causal top-w masks of dynamic mask attention
    for (const int w : {4096, 1024, 512, 64}) {
      Problem& problem = problems.emplace_back(causal_or_not(1, 16, 4, 128, 8192, true));
      problem.bias = BiasShape::key;
      problem.mask = MaskShape::top_w;
      problem.top_w = w;
    }
  } else if (name == "dynamic") {  // one head pair and many keys, then four: from plans that dominate to tiles that do
    for (const int seqlen : {4096, 16384, 32768}) {
      Problem& problem = problems.emplace_back(causal_or_not(1, 2, 1, 64, seqlen, true));
      problem.bias = BiasShape::key;
      problem.mask = MaskShape::top_w;
      problem.top_w = 1024;
    }
    for (Problem& problem : problem_set("masked")) problems.push_back(problem);
  } else if (name == "small") {  // bound by launches
    for (const int seqlen : {256, 512, 1024, 2048, 4096}) problems.push_back(causal_or_not(1, 2, 1, 64, seqlen, true));
  } else if (name == "features") {
    return feature_problems();
  } else if (name == "sparse") {
    return sparse_problems();
  } else if (name == "density") {
    return density_problems();
  } else if (name == "plans") {
    return plan_problems();
  }
  return problems;
}

}  // namespace flashdma_bwd::bench
