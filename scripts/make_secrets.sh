#!/usr/bin/env bash
# Makes what a run on several machines needs for encryption and authentication: a certificate
# authority for development, certificates of the learner and of its actors, and a token.
#
#   scripts/make_secrets.sh [--days=N] DIR HOST [HOST ...]
#   scripts/make_secrets.sh --renew [--days=N] DIR HOST [HOST ...]
#
#   scripts/make_secrets.sh secrets learner learner.example.org 10.0.0.5
#
# HOST: each name and each address by which actors reach the learner, without the port. Writes
#
#   DIR/token                 learner and actors   --auth_token_file
#   DIR/cert.pem DIR/key.pem  learner              --tls_certificate --tls_key
#   DIR/proxy.pem             proxy                cert.pem and key.pem in one file
#   DIR/ca.pem                actors, proxy        --tls_ca
#   DIR/actor-cert.pem, DIR/actor-key.pem  actors  --tls_cert --tls_key
#   DIR/ca-key.pem            nobody: it signs certificates, and stays on this machine
#
# readable by you alone, and refuses to replace them. --renew keeps the authority and the token and
# issues new certificates for these hosts. --days: how long they are valid (default 365).
set -euo pipefail
umask 077

fail() { printf 'error: %s\n' "$*" >&2; exit 2; }
usage() { sed -n '2,/^set /{/^#/s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}"; }

renew=false
days=365
authority_days=3650
while [[ "${1:-}" == -* ]]; do
  case "$1" in
    --renew) renew=true ;;
    --days=*) days="${1#--days=}" ;;
    --days)
      days="${2:-}"
      shift
      ;;
    -h | --help)
      usage
      exit
      ;;
    *) fail "unknown option $1; see $0 --help" ;;
  esac
  shift
done
(($# >= 2)) || fail "usage: $0 [--renew] [--days=N] DIR HOST [HOST ...]"
if ! [[ "$days" =~ ^[1-9][0-9]{0,3}$ ]] || ((days > authority_days)); then
  fail "--days=$days is not a number of days from 1 to $authority_days."
fi
command -v openssl > /dev/null || fail "openssl is missing: sudo apt-get install openssl"
directory="${1%/}"
shift
hosts=("$@")

# As in a certificate: "DNS:learner" or "IP:10.0.0.5".
alternative_name() { # HOST
  if [[ "$1" =~ ^[0-9]+(\.[0-9]+){3}$ || "$1" =~ ^[0-9a-fA-F]*:[0-9a-fA-F:.]*:[0-9a-fA-F:.]*$ ]]
  then
    echo "IP:$1"
  elif [[ "$1" =~ ^(\*\.)?[A-Za-z0-9_]([A-Za-z0-9_.-]*[A-Za-z0-9_])?$ ]]; then
    echo "DNS:$1"
  else
    fail "\"$1\" is neither a host name nor an IP address; leave out ports and brackets."
  fi
}

files=(ca.pem ca-key.pem cert.pem key.pem proxy.pem actor-cert.pem actor-key.pem token)
existing() {
  local name
  for name in "${files[@]}"; do [[ ! -e "$directory/$name" ]] || echo "$directory/$name"; done
}

names=()
for host in "${hosts[@]}"; do names+=("$(alternative_name "$host")"); done

if $renew; then
  for name in ca.pem ca-key.pem; do
    [[ -r "$directory/$name" ]] ||
      fail "cannot read $directory/$name, which --renew needs. Without --renew, everything is made again."
  done
else
  found="$(existing | paste -sd ' ')"
  [[ -z "$found" ]] ||
    fail "$found: there already. Issue a new certificate for the same run with --renew, or" \
      "name another directory."
fi
mkdir -p "$directory"
[[ -z "$(find "$directory" -maxdepth 0 -perm /077)" ]] ||
  fail "other users can enter $directory: chmod 700 $directory, or name another directory."

# Complete or not at all.
new="$(mktemp -d "$directory/.new.XXXXXX")"
trap 'rm -rf "$new"' EXIT

quietly() { # COMMAND ...
  "$@" 2> "$new/errors" || fail "$* failed: $(< "$new/errors")"
}

make_key() { # FILE
  quietly openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out "$1"
}

authority="$directory"
if ! $renew; then
  authority="$new"
  make_key "$new/ca-key.pem"
  quietly openssl req -x509 -new -key "$new/ca-key.pem" -days "$authority_days" -sha256 \
    -subj "/CN=SEED RL development CA $(openssl rand -hex 4)" \
    -addext "keyUsage=critical,keyCertSign,cRLSign" -out "$new/ca.pem"
  openssl rand -hex 32 > "$new/token"
fi

certify() { # NAME PURPOSE KEY CERTIFICATE [EXTENSION]
  make_key "$new/$3"
  quietly openssl req -new -key "$new/$3" -subj "/CN=SEED RL $1" -out "$new/request"
  cat > "$new/extensions" << END
basicConstraints = critical, CA:FALSE
keyUsage = critical, digitalSignature
extendedKeyUsage = $2
authorityKeyIdentifier = keyid
${5:-}
END
  quietly openssl x509 -req -in "$new/request" -CA "$authority/ca.pem" \
    -CAkey "$authority/ca-key.pem" -set_serial "0x$(openssl rand -hex 16)" -days "$days" -sha256 \
    -extfile "$new/extensions" -out "$new/$4"
}

certify learner serverAuth key.pem cert.pem "subjectAltName = $(IFS=,; echo "${names[*]}")"
certify actor clientAuth actor-key.pem actor-cert.pem
cat "$new/cert.pem" "$new/key.pem" > "$new/proxy.pem"

# The learner's certificate comes last: with it, the directory is complete.
for name in ca-key.pem ca.pem token actor-key.pem actor-cert.pem key.pem proxy.pem cert.pem; do
  [[ ! -e "$new/$name" ]] || mv -f "$new/$name" "$directory/$name"
done

until="$(openssl x509 -in "$directory/cert.pem" -noout -enddate | cut -d= -f2)"
cat << END
$directory: secrets for a learner that actors reach as ${hosts[*]}, valid until $until.

  learner   --auth_token_file=$directory/token --tls_certificate=$directory/cert.pem --tls_key=$directory/key.pem
  actors    --auth_token_file=$directory/token --tls_ca=$directory/ca.pem
            --tls_cert=$directory/actor-cert.pem --tls_key=$directory/actor-key.pem

Copy to the actors' machines only token, ca.pem and actor-*.pem, by a way that you trust (scp -p).
ca-key.pem stays here: --renew needs it, and who has it can pass for the learner.
END
if $renew; then
  echo "A running learner or proxy has the old certificate until it is restarted. Actors keep theirs" \
    "until it expires: copy actor-*.pem to them before."
fi
