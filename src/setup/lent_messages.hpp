// Messages of a caller's, as long as heddle uses them.
#pragma once

#include "heddle/heddle.h"

namespace heddle {

// Gives the lender's messages back, exactly once.
class LentMessages {
 public:
  explicit LentMessages(const heddle_p2p& p2p) : p2p_(p2p) {}
  LentMessages(const LentMessages&) = delete;
  LentMessages& operator=(const LentMessages&) = delete;
  ~LentMessages() {
    if (p2p_.release != nullptr) p2p_.release(p2p_.context);
  }
  const heddle_p2p& p2p() const { return p2p_; }

 private:
  heddle_p2p p2p_;
};

}  // namespace heddle
