// Catch2, version 2 or 3, whichever is installed. Tests use TEST_CASE, SECTION, REQUIRE, CHECK, INFO and FAIL, which
// both have.
#pragma once

// The build says which was found; a machine may have the headers of both.
#if !defined(FLASHDMA_BWD_CATCH_VERSION)
#error "the build defines FLASHDMA_BWD_CATCH_VERSION: the major version of Catch2 that it found"
#elif FLASHDMA_BWD_CATCH_VERSION >= 3
#include <catch2/catch_all.hpp>
#else
#include <catch2/catch.hpp>
#endif
