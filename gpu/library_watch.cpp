#include "gpu/library_watch.hpp"

#include <dlfcn.h>

#include <algorithm>
#include <climits>
#include <cstring>
#include <memory>

namespace heddle::gpu {
namespace {

// An address in the library that this code is in, which the linker's list of our namespace has an entry for.
const char anchor = 0;

link_map* own_entry() {
  Dl_info info;
  void* entry = nullptr;
  return dladdr1(&anchor, &info, &entry, RTLD_DL_LINKMAP) != 0 ? static_cast<link_map*>(entry) : nullptr;
}

bool is_called(const char* path, const char* library) {
  const char* slash = std::strrchr(path, '/');
  return std::strncmp(slash != nullptr ? slash + 1 : path, library, std::strlen(library)) == 0;
}

}  // namespace

struct LibraryWatch::List {
  const char* wanted = nullptr;
  link_map* entry = nullptr;  // any one, to begin at
  unsigned long long loads = 0;
  bool has_library = false;
  char library[PATH_MAX];  // path of the one that is wanted
  char last[PATH_MAX];     // path of the last entry

  // The linker holds its lock on the list while it calls back, so that the list can be walked. Nothing may be
  // called there that takes another lock of the linker's, as dlopen and dladdr do, and malloc may: others
  // take the two in the other order.
  void read() { dl_iterate_phdr(&at_first, this); }
  void read_loads() { dl_iterate_phdr(&count_at_first, this); }

 private:
  static int count_at_first(dl_phdr_info* info, std::size_t /*bytes*/, void* self) {
    static_cast<List*>(self)->loads = info->dlpi_adds;
    return 1;
  }
  static int at_first(dl_phdr_info* info, std::size_t /*bytes*/, void* self) {
    auto& list = *static_cast<List*>(self);
    list.loads = info->dlpi_adds;
    list.has_library = false;
    link_map* entry = list.entry;
    while (entry->l_prev != nullptr)
      entry = entry->l_prev;
    for (;; entry = entry->l_next) {
      if (is_called(entry->l_name, list.wanted)) {
        list.has_library = true;
        copy(entry->l_name, list.library);
      }
      if (entry->l_next == nullptr) break;
    }
    copy(entry->l_name, list.last);
    return 1;
  }
  // A path that is too long is cut, and then that of no library.
  static void copy(const char* path, char (&to)[PATH_MAX]) {
    const std::size_t length = std::min(std::strlen(path), sizeof to - 1);
    std::memcpy(to, path, length);
    to[length] = '\0';
  }
};

LibraryWatch::LibraryWatch(const char* library) : library_(library), own_(own_entry()) {
  more_.l_next = &more_;
  last_.store(library != nullptr && own_ != nullptr ? &more_ : &end_, std::memory_order_relaxed);
}

// Something was loaded since the last look, or everything was found.
[[gnu::noinline]] bool LibraryWatch::look() {
  if (handle() != nullptr) return true;
  const std::lock_guard lock(mutex_);
  if (handle() != nullptr) return true;
  // Not on the stack: the thread may have a small one.
  const auto list = std::make_unique<List>();
  list->wanted = library_;
  list->entry = own_;
  if (kept_ >= kMostKept) {
    list->read_loads();
    if (list->loads == loads_) return false;
  }
  // Whatever is loaded while this looks comes after the entry that it then watches, and is seen by the next
  // call.
  while (!follow(list.get())) {
  }
  loads_ = list->loads;
  if (!list->has_library) return false;
  void* found = dlopen(list->library, RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE);
  if (found == nullptr) return false;
  handle_.store(found, std::memory_order_release);
  last_.store(&more_, std::memory_order_relaxed);
  return true;
}

// Reads the list and watches its end; false where that has moved on meanwhile.
bool LibraryWatch::follow(List* list) {
  list->read();
  if (kept_ >= kMostKept) {
    last_.store(&more_, std::memory_order_relaxed);
    return true;
  }
  ++kept_;
  void* handle = dlopen(list->last, RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE);
  link_map* entry = nullptr;
  if (handle == nullptr || dlinfo(handle, RTLD_DI_LINKMAP, static_cast<void*>(&entry)) != 0) return false;
  last_.store(entry, std::memory_order_release);
  return __atomic_load_n(&entry->l_next, __ATOMIC_RELAXED) == nullptr;
}

}  // namespace heddle::gpu
