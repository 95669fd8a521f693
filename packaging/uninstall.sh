#!/bin/sh
# Removes what install.sh installed. Conversations, configuration and the agents' transcripts stay.
set -eu

fail() {
    echo "uninstall.sh: $1" >&2
    exit "${2:-1}"
}

prefix="${HOME:+$HOME/.local}"
while [ $# -gt 0 ]; do
    case "$1" in
        --prefix) prefix="${2:-}"; shift ;;
        -h | --help) echo "Usage: packaging/uninstall.sh [--prefix DIR]"; exit 0 ;;
        *) fail "what is $1? Usage: packaging/uninstall.sh [--prefix DIR]" 2 ;;
    esac
    [ $# -gt 0 ] && shift
done
case "$prefix" in
    /*) ;;
    "") fail "HOME is not set; say where from with --prefix DIR" 2 ;;
    *) fail "--prefix takes an absolute path, not \"$prefix\"" 2 ;;
esac
prefix="${prefix%/}"
installed="$prefix/share/session-bridge/installed"
if [ ! -f "$installed" ]; then
    echo "nothing is installed in $prefix"
    exit 0
fi

reload=
case "$(uname -s)" in
    Linux)
        # Of several that are installed, only this one.
        if command -v systemctl >/dev/null &&
            systemctl --user is-enabled --quiet sessiond.socket 2>/dev/null &&
            # That of another prefix is told as the link to it.
            [ "$(readlink -f "$(systemctl --user show --property FragmentPath --value sessiond.socket)")" = \
                "$(readlink -f "$prefix/share/systemd/user/sessiond.socket")" ]; then
            systemctl --user disable --now sessiond.socket sessiond.service ||
                echo "uninstall.sh: the service could not be disabled; see systemctl --user status sessiond" >&2
            reload=yes
        fi
        ;;
    Darwin) launchctl bootout "gui/$(id -u)/io.session-bridge.sessiond" 2>/dev/null || true ;;
esac
# Turns that run are cancelled, as with every stop. There may be no daemon, or one of another program.
pid="$("$prefix/bin/sessionctl" --json --no-start status 2>/dev/null | sed -n 's/.*"pid":\([0-9]*\).*/\1/p')"
case "$(readlink "/proc/${pid:-none}/exe" || echo unknown)" in
    "$prefix"/bin/* | "$(cd "$prefix" && pwd -P)"/bin/* | unknown) "$prefix/bin/sessionctl" --no-start stop >/dev/null 2>&1 || true ;;
esac

# A file, and the folders above it that are empty then, up to the prefix.
remove() {
    rm -f "$1"
    folder="${1%/*}"
    while case "$folder" in "$prefix"/*) rmdir "$folder" 2>/dev/null ;; *) false ;; esac; do
        folder="${folder%/*}"
    done
}
while IFS= read -r file; do
    remove "$file"
done <"$installed"
remove "$installed"
[ -z "$reload" ] || systemctl --user daemon-reload || true
echo "removed from $prefix; conversations and configuration are where they were"
