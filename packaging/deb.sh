#!/bin/sh
# Builds a Debian package from this source.
set -eu

fail() {
    echo "deb.sh: $1" >&2
    exit "${2:-1}"
}

# misused WORDS: how it is used, and what was wrong.
misused() {
    echo "Usage: packaging/deb.sh [--from DIR] FOLDER: the folder of an already built sessionctl, and the folder for the package" >&2
    fail "$1" 2
}

from=
if [ "${1:-}" = --from ]; then
    case "${2:-}" in
        "" | -*) misused "--from needs a folder" ;;
    esac
    from="$2"
    shift 2
fi
case "${1:-}" in
    "") misused "missing argument: FOLDER" ;;
    -*) misused "unknown option: $1" ;;
esac
[ $# -eq 1 ] || misused "too many arguments: $*"
out="$1"
command -v dpkg-deb >/dev/null || fail "dpkg-deb was not found"

source="$(cd "$(dirname "$0")/.." && pwd)"
if [ -z "$from" ]; then
    profile="${BUILD_PROFILE:-dist}"
    (cd "$source" && cargo build --profile "$profile" --locked --bin sessionctl)
    # Cargo writes the profile "dev" to the folder "debug".
    [ "$profile" != dev ] || profile=debug
    case "${CARGO_TARGET_DIR:-target}" in
        /*) from="$CARGO_TARGET_DIR/$profile" ;;
        *) from="$source/${CARGO_TARGET_DIR:-target}/$profile" ;;
    esac
fi

root="$(mktemp -d)"
trap 'rm -rf "$root"' EXIT
chmod 755 "$root"
umask 022
mkdir -p "$root/usr/bin" "$root/usr/lib/systemd/user" "$root/DEBIAN"
install -m 755 "$from/sessionctl" "$root/usr/bin/sessionctl"
if command -v strip >/dev/null; then
    strip --strip-debug "$root/usr/bin/sessionctl"
fi
# One program under two names: its name decides what it does. A hard link, because the scripts of the package know a daemon by
# the name that it was started under.
ln "$root/usr/bin/sessionctl" "$root/usr/bin/sessiond"
"$root/usr/bin/sessionctl" generate "$root/usr" >/dev/null
# Where Debian's zsh looks.
mkdir -p "$root/usr/share/zsh/vendor-completions"
mv "$root"/usr/share/zsh/site-functions/_* "$root/usr/share/zsh/vendor-completions/"
rmdir "$root/usr/share/zsh/site-functions"
gzip -9n "$root"/usr/share/man/man1/*.1
for unit in sessiond.service sessiond.socket; do
    sed "s|@bindir@|/usr/bin|g" "$source/packaging/systemd/$unit" >"$root/usr/lib/systemd/user/$unit"
done
doc="$root/usr/share/doc/session-bridge"
install -d "$doc/packaging/clients" "$doc/packaging/docs"
install -m 644 "$source/LICENSE" "$doc/copyright"
# In the same folders as in the source tree, so that links in the documentation work.
install -m 644 "$source/packaging/openrpc.json" "$doc/packaging/openrpc.json"
install -m 644 "$source"/packaging/docs/* "$doc/packaging/docs/"
install -m 644 "$source"/packaging/clients/*.* "$doc/packaging/clients/"
gzip -9nc "$source/CHANGELOG.md" >"$doc/changelog.gz"
gzip -9nc "$source/README.md" >"$doc/README.md.gz"
for script in prerm postinst; do
    cat "$source/packaging/debian/daemons.sh" "$source/packaging/debian/$script" >"$root/DEBIAN/$script"
    chmod 755 "$root/DEBIAN/$script"
done
(cd "$root" && find usr -type f -exec md5sum {} + | sort -k 2) >"$root/DEBIAN/md5sums"

version="$("$root/usr/bin/sessionctl" --version | cut -d' ' -f2)"
architecture="$(dpkg --print-architecture)"
glibc="$(ldd --version 2>/dev/null | sed -n '1s/.* //p')"
cat >"$root/DEBIAN/control" <<END
Package: session-bridge
Version: $version
Architecture: $architecture
Maintainer: session-bridge maintainers <maintainers@session-bridge.invalid>
Depends: libc6 (>= ${glibc:-2.28}), libgcc-s1
Section: devel
Priority: optional
Installed-Size: $(du -sk "$root/usr" | cut -f1)
Description: conversations with coding agents that outlive their sessions
 A daemon that gives each conversation with a coding agent an id of its own,
 and brings its sessions back after limits, crashes and clean-ups; and its
 command line.
END
mkdir -p "$out"
package="$out/session-bridge_${version}_$architecture.deb"
dpkg-deb --root-owner-group --build "$root" "$package" >/dev/null
echo "$package"
