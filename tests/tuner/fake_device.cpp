// The fake.
#include "tuner/fake_device.hpp"

#include "selection/configuration_name.hpp"
#include "support/catch.hpp"
#include "tuner/timing_model.hpp"

namespace flashdma_bwd::tune::test {

Environment test_environment() {
  return {"NVIDIA H200", 90, 132, 232448, "580.159.04", "CUDA 13.0", "8c5bcadeb39ec907", "0123456789ab"};
}

std::string FakeDevice::describe(DeviceDescription& description) {
  description.environment = gpu_.environment;
  description.environment.commit.clear();
  description.kernels = gpu_.kernels;
  return gpu_.absent;
}

std::string FakeDevice::measure(const Request& request, std::vector<Candidate>& results) {
  gpu_.requests.push_back(request);
  if (gpu_.before)
    if (std::string error = gpu_.before(request); !error.empty()) return error;
  results.clear();
  for (const std::string& kernel : request.kernels) {
    Candidate& candidate = results.emplace_back();
    candidate.kernel = kernel;
    if (gpu_.broken.contains(kernel)) {
      candidate.failure = "its gradients are wrong";
      continue;
    }
    const Parsed<KernelConfig> config = parse_configuration_name(kernel);
    REQUIRE(config);
    const double ms = generator::test::model_ms(request.problem, config.value->tile, 1);
    candidate.cold = {ms, ms / 500};
    candidate.warm = {ms * 0.9, ms / 500};
    candidate.rounds = request.rounds;
    candidate.check = Check::reference;
    candidate.error = 1e-3;
  }
  return {};
}

Measurement test_measurement(std::int64_t seqlen) {
  Measurement measurement;
  Problem& p = measurement.problem;
  p.head_dim = 128;
  p.batch = 2;
  p.heads = 16;
  p.heads_kv = 4;
  p.seqlen_q = p.seqlen_k = seqlen;
  p.causal = p.masked = true;
  p.layout = KeyLayout::reordered;
  p.mask_density = 120;
  p.bias = BiasKind::key_vector;
  measurement.environment = test_environment();
  measurement.date = "2025-11-22";
  const std::string head = "bwd_sm90_d128_bf16_", tail = "_keybias";
  measurement.candidates = {
      {head + "hopper_m64n128_wg2_q2_do2_ds2_r24c240" + tail,
       {1.5, 0.01},
       {1.25, 0.02},
       15,
       false,
       Check::smaller,
       2e-3,
       {}},
      {head + "ampere_m64n64_w8_s2_kv2_dq2_q2_do2" + tail,
       {2.5, 0.03},
       {2.25, 0.04},
       3,
       true,
       Check::reference,
       1e-3,
       {}},
      {head + "ampere_m64n128_w8_s2_kv2_dq2_q2_do1" + tail, {}, {}, 0, false, Check::none, 0, "it said \"no\"\n"}};
  return measurement;
}

}  // namespace flashdma_bwd::tune::test
