// fp16 and bf16 conversions over all 65,536 values of each, and rounding at and beside every midpoint.
#include "reference/number_formats.hpp"

#include <cmath>
#include <cstdint>
#include <limits>

#include "support/catch.hpp"

using namespace flashdma_bwd;

namespace {

struct Format {
  const char* name;
  float (*widen)(std::uint16_t);
  std::uint16_t (*narrow)(double);
  std::uint16_t infinity, one;
  double smallest, largest;
};

const Format kFormats[] = {
    {"fp16", fp16_to_float, fp16_from_double, 0x7c00, 0x3c00, 0x1p-24, 65504.0},
    {"bf16", bf16_to_float, bf16_from_double, 0x7f80, 0x3f80, 0x1p-133, 0x1.fep127},
};

}  // namespace

TEST_CASE("known values of 16-bit formats") {
  for (const Format& format : kFormats) {
    INFO(format.name);
    CHECK(format.widen(format.one) == 1.0f);
    CHECK(format.widen(0x8000 | format.one) == -1.0f);
    CHECK(static_cast<double>(format.widen(1)) == format.smallest);
    CHECK(static_cast<double>(format.widen(static_cast<std::uint16_t>(format.infinity - 1))) == format.largest);
    CHECK(std::isinf(format.widen(format.infinity)));
    CHECK(std::isnan(format.widen(static_cast<std::uint16_t>(format.infinity + 1))));
    CHECK(std::isnan(format.widen(0xffff)));
  }
}

TEST_CASE("narrowing inverts widening for every 16-bit value") {
  for (const Format& format : kFormats) {
    int wrong = 0;
    for (unsigned bits = 0; bits <= 0xffff; ++bits) {
      const float value = format.widen(static_cast<std::uint16_t>(bits));
      const std::uint16_t back = format.narrow(static_cast<double>(value));
      const bool same = std::isnan(value) ? std::isnan(format.widen(back)) : back == bits;
      if (!same) ++wrong;
    }
    INFO(format.name);
    CHECK(wrong == 0);
  }
}

TEST_CASE("narrowing rounds to nearest, ties to even") {
  for (const Format& format : kFormats) {
    int wrong = 0;
    for (unsigned low = 0; low + 1 < format.infinity; ++low) {
      const unsigned high = low + 1;
      const double below = static_cast<double>(format.widen(static_cast<std::uint16_t>(low)));
      const double above = static_cast<double>(format.widen(static_cast<std::uint16_t>(high)));
      const double middle = (below + above) / 2;  // exact: a double has the bits
      const unsigned even = low % 2 == 0 ? low : high;
      if (format.narrow(middle) != even) ++wrong;
      if (format.narrow(-middle) != (0x8000 | even)) ++wrong;
      if (format.narrow(std::nextafter(middle, 0.0)) != low) ++wrong;
      if (format.narrow(std::nextafter(middle, 1e300)) != high) ++wrong;
    }
    INFO(format.name);
    CHECK(wrong == 0);
  }
}

TEST_CASE("values beyond the largest become infinity from half a unit on") {
  for (const Format& format : kFormats) {
    INFO(format.name);
    const double previous = static_cast<double>(format.widen(static_cast<std::uint16_t>(format.infinity - 2)));
    const double limit = format.largest + (format.largest - previous) / 2;
    CHECK(format.narrow(limit) == format.infinity);
    CHECK(format.narrow(std::nextafter(limit, 0.0)) == format.infinity - 1);
    CHECK(format.narrow(1e300) == format.infinity);
    CHECK(format.narrow(-std::numeric_limits<double>::infinity()) == (0x8000 | format.infinity));
    CHECK(format.narrow(1e-300) == 0);
    CHECK(format.narrow(-1e-300) == 0x8000);
  }
}
