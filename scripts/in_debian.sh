#!/usr/bin/env bash
# Runs a command in a bare Debian of another release, in a copy of this checkout.
#
#   scripts/in_debian.sh SUITE COMMAND [ARGUMENT ...]
#
#   scripts/in_debian.sh trixie scripts/check_pythons.sh python3
#   scripts/in_debian.sh trixie ./run_tests.sh tests/grpc
#
# Needs root and a Debian or Ubuntu (debootstrap is installed if it is missing). The system is kept
# in DEBIAN_ROOT/SUITE (default: /var/tmp/seed_rl_debian) for the next call; delete it to start anew.
# Packages come from DEBIAN_MIRROR, by default the mirror that this machine's apt uses; apt's and
# pip's settings and this machine's own certificates are copied, and pip's cache is shared.
set -euo pipefail

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
say() { printf 'in_debian: %s\n' "$*" >&2; }
fail() { printf 'error: %s\n' "$*" >&2; exit 1; }

(($# >= 2)) || fail "write: $0 SUITE COMMAND [ARGUMENT ...]   (SUITE: trixie, bookworm, ...)"
[[ "$(id -u)" == 0 ]] || fail "only root can make another system; start this with sudo."
suite="$1"
shift
tree="${DEBIAN_ROOT:-/var/tmp/seed_rl_debian}/$suite"

# All that is mounted here disappears with this process, however it ends.
if [[ -z "${IN_DEBIAN_MOUNTS:-}" ]]; then
  IN_DEBIAN_MOUNTS=1 exec unshare --mount "${BASH_SOURCE[0]}" "$suite" "$@"
fi
unset IN_DEBIAN_MOUNTS

mirror() {
  local found="${DEBIAN_MIRROR:-}"
  # shellcheck disable=SC2016  # apt's variables, not the shell's
  [[ -n "$found" ]] || found="$(apt-get indextargets --format '$(REPO_URI)' \
    'Created-By: Packages' 'Origin: Debian' 'Label: Debian' | head -n 1)"
  [[ -n "$found" ]] || fail "this machine's apt has no mirror of Debian; set DEBIAN_MIRROR=URL."
  echo "$found"
}

make_system() {
  local source new="$tree.new"
  if ! command -v debootstrap > /dev/null; then
    say "installing debootstrap"
    apt-get -qq update || say "apt-get update failed; trying with the lists there are"
    apt-get -qq install --yes --no-install-recommends debootstrap debian-archive-keyring > /dev/null
  fi
  source="$(mirror)"
  say "making a bare Debian $suite in $tree (some minutes)"
  rm -rf --one-file-system "$new"
  mkdir -p "$new"
  debootstrap --variant=minbase --include=ca-certificates,python3 "$suite" "$new" "$source" \
    > "$tree.log" 2>&1 || fail "debootstrap failed; see $tree.log"
  umount -R "$new/proc" "$new/sys" 2> /dev/null || true
  rm -rf --one-file-system "$tree"
  mv "$new" "$tree"
}

# Downloads must work inside as they do outside.
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

# What earlier calls installed and built stays.
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
