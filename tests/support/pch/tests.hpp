// The same for a program of many tests.
#ifndef HEDDLE_PCH_TESTS_HPP  // a compiler warns of a #pragma once in what it compiles by itself
#define HEDDLE_PCH_TESTS_HPP

#include <gtest/gtest.h>

#include "../../../tools/pch/library.hpp"

#endif
