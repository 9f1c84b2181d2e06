#!/usr/bin/env bash
# Runs a command in a minimal Debian of another release, in a copy of this checkout.
#
#   scripts/in_debian.sh SUITE COMMAND [ARGUMENT ...]
#
#   scripts/in_debian.sh trixie scripts/check_pythons.sh python3
#   scripts/in_debian.sh trixie ./run_tests.sh tests/grpc
#
# Needs root on Debian or Ubuntu (installs debootstrap if missing). The system is kept for reuse in
# DEBIAN_ROOT/SUITE (default: /var/tmp/seed_rl_debian/SUITE); delete it to start over. Packages come
# from DEBIAN_MIRROR (default: the mirror that this machine's apt uses). The settings of apt and pip
# and this machine's certificates are copied; pip's cache is shared.
set -euo pipefail

root="$(CDPATH="" cd -- "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
say() { printf 'in_debian: %s\n' "$*" >&2; }
fail() { printf 'error: %s\n' "$*" >&2; exit 1; }

(($# >= 2)) || fail "usage: $0 SUITE COMMAND [ARGUMENT ...]   (SUITE: trixie, bookworm, ...)"
[[ "$(id -u)" == 0 ]] || fail "must run as root; use sudo."
suite="$1"
shift
tree="${DEBIAN_ROOT:-/var/tmp/seed_rl_debian}/$suite"

# In a mount namespace of its own, all mounts disappear on exit.
if [[ -z "${IN_DEBIAN_MOUNTS:-}" ]]; then
  IN_DEBIAN_MOUNTS=1 exec unshare --mount "${BASH_SOURCE[0]}" "$suite" "$@"
fi
unset IN_DEBIAN_MOUNTS

mirror() {
  local found="${DEBIAN_MIRROR:-}"
  # shellcheck disable=SC2016  # apt's variables, not the shell's
  [[ -n "$found" ]] || found="$(apt-get indextargets --format '$(REPO_URI)' \
    'Created-By: Packages' 'Origin: Debian' 'Label: Debian' | head -n 1)"
  [[ -n "$found" ]] || fail "this machine's apt has no Debian mirror; set DEBIAN_MIRROR=URL."
  echo "$found"
}

make_system() {
  local source new="$tree.new"
  if ! command -v debootstrap > /dev/null; then
    say "installing debootstrap"
    apt-get -qq update || say "apt-get update failed; trying with the existing package lists"
    apt-get -qq install --yes --no-install-recommends debootstrap debian-archive-keyring > /dev/null
  fi
  source="$(mirror)"
  say "creating a minimal Debian $suite in $tree (takes a few minutes)"
  rm -rf --one-file-system "$new"
  mkdir -p "$new"
  debootstrap --variant=minbase --include=ca-certificates,python3 "$suite" "$new" "$source" \
    > "$tree.log" 2>&1 || fail "debootstrap failed; see $tree.log"
  umount -R "$new/proc" "$new/sys" 2> /dev/null || true
  rm -rf --one-file-system "$tree"
  mv "$new" "$tree"
}

# Downloads must work as they do outside.
copy_settings() {
  apt-config dump | grep -E '^Acquire::(https?|Check|Retries)' \
    > "$tree/etc/apt/apt.conf.d/99this-machine" || true
  cp -L /etc/resolv.conf /etc/hosts "$tree/etc/"
  cp /usr/local/share/ca-certificates/*.crt "$tree/usr/local/share/ca-certificates/" \
    2> /dev/null || true
  chroot "$tree" update-ca-certificates > /dev/null 2>&1
  local file
  for file in /etc/pip.conf "$HOME/.config/pip/pip.conf" "$HOME/.pip/pip.conf"; do
    [[ ! -f "$file" ]] || install -D -m 600 "$file" "$tree${file/#$HOME//root}"
  done
}

mount_all() {
  local cache
  mount -t proc proc "$tree/proc"
  mount --rbind /sys "$tree/sys"
  mount --rbind /dev "$tree/dev"
  if cache="$(python3 -m pip cache dir 2> /dev/null)" && [[ -d "$cache" ]]; then
    mkdir -p "$tree/root/.cache/pip"
    mount --bind "$cache" "$tree/root/.cache/pip"
  fi
}

# Keeps what earlier calls installed and built.
copy_checkout() {
  local copy="$tree/root/seed_rl"
  mkdir -p "$copy"
  find "$copy" \( -path "$copy/.venv" -o -path "$copy/build" -o -name _native \) -prune -o \
    ! -type d -exec rm {} +
  git -C "$root" ls-files -z --cached --others --exclude-standard |
    tar -C "$root" --null --ignore-failed-read -T - -c | tar -C "$copy" --no-same-owner -x
}

[[ -e "$tree/etc/debian_version" ]] || make_system
copy_settings
mount_all
copy_checkout
say "Debian $(cat "$tree/etc/debian_version"): $*"
exec env -u PYTHONPATH -u VIRTUAL_ENV -u TMPDIR HOME=/root LC_ALL=C.UTF-8 \
  PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
  chroot "$tree" sh -c 'cd /root/seed_rl && exec "$@"' sh "$@"
