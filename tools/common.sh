# Shared by quickstart and check; sourced, not run. Needs `root` (the repository) and `program` (for messages).

say() { printf '%s\n' "$*"; }
step() { printf '==> %s\n' "$*"; }
warn() { printf '%s: %s\n' "$program" "$*" >&2; }
die() { warn "$*"; exit 1; }

# Debian 12's names. What the libraries, the tools and the examples are built with:
build_packages=(g++ meson ninja-build pkg-config python3 libhwy-dev libfmt-dev nlohmann-json3-dev libcli11-dev
                libhwloc-dev libmpich-dev mpich libucx-dev libibverbs-dev)

# Sets `missing` to the packages among the arguments that are not installed.
find_missing_packages() {
  local package state
  missing=()
  for package in "$@"; do
    state=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true)
    [[ $state == installed ]] || missing+=("$package")
  done
}

# Installs what is missing of the packages named, and touches nothing when nothing is.
install_packages() {
  if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
    say "Not a Debian system: nothing is installed; these Debian packages, or what they hold, must be there: $*"
    return
  fi
  find_missing_packages "$@"
  if [[ ${#missing[@]} -eq 0 ]]; then
    say "Packages: all $# are installed"
    return
  fi
  local as_root=()
  if [[ $(id -u) -ne 0 ]]; then
    command -v sudo >/dev/null ||
      die "missing packages, and neither root nor sudo to install them; as root: apt-get install ${missing[*]}"
    as_root=(sudo)
  fi
  step "Installing ${#missing[@]} packages: ${missing[*]}"
  local log
  log=$(mktemp)
  if ! { "${as_root[@]}" apt-get update &&
         "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
           apt-get install -y --no-install-recommends "${missing[@]}"; } </dev/null >"$log" 2>&1; then
    tail -n 20 "$log" >&2
    rm -f "$log"
    die "apt-get failed (see above); to try by hand: apt-get update && apt-get install ${missing[*]}"
  fi
  rm -f "$log"
}

# configure DIRECTORY OPTION...: makes a build directory, or brings an existing one to these options. A directory
# that another checkout or a broken setup left is made anew.
configure() {
  local dir=$1
  shift
  local wanted="$root $*"
  if [[ -f $dir/build.ninja && -f $dir/.configured && $(<"$dir/.configured") == "$wanted" ]]; then return; fi
  step "Configuring ${dir#"$root"/}"
  rm -rf "$dir"
  mkdir -p "$dir"
  if ! meson setup "$dir" "$root" "$@" >"$dir/setup.log" 2>&1; then
    grep -E 'ERROR|WARNING' "$dir/setup.log" >&2 || tail -n 20 "$dir/setup.log" >&2
    die "meson setup failed; all of it is in ${dir#"$root"/}/setup.log"
  fi
  printf '%s' "$wanted" >"$dir/.configured"
}

# build DIRECTORY [TARGET...]: shows nothing but progress on a terminal, and the errors.
build() {
  local dir=$1
  shift
  local begin=$SECONDS
  step "Building ${dir#"$root"/}"
  if [[ -t 1 ]]; then
    ninja -C "$dir" "$@" || die "the build failed (see above)"
  elif ! ninja -C "$dir" "$@" >"$dir/ninja.log" 2>&1; then
    { grep -A 40 '^FAILED' "$dir/ninja.log" || tail -n 20 "$dir/ninja.log"; } | grep -v '^\[' | head -n 80 >&2 || true
    die "the build failed; all of it is in ${dir#"$root"/}/ninja.log"
  fi
  say "    $((SECONDS - begin)) s"
}
