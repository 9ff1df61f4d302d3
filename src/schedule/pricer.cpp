#include "schedule/pricer.hpp"

