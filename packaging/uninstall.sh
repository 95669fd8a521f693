#!/bin/sh
# Removes what install.sh installed. Conversations, configuration and the agents' transcripts stay.
set -eu

fail() {
    echo "uninstall.sh: $1" >&2
    exit "${2:-1}"
}

prefix="${HOME:-}/.local"
while [ $# -gt 0 ]; do
    case "$1" in
        --prefix) prefix="${2:-}"; shift ;;
        -h | --help) echo "Usage: packaging/uninstall.sh [--prefix DIR]"; exit 0 ;;
        *) fail "what is $1? Usage: packaging/uninstall.sh [--prefix DIR]" 2 ;;
    esac
    [ $# -gt 0 ] && shift
done
installed="$prefix/share/session-bridge/installed"
if [ ! -f "$installed" ]; then
    echo "nothing is installed in $prefix"
    exit 0
fi

case "$(uname -s)" in
    Linux)
        if command -v systemctl >/dev/null && systemctl --user is-enabled --quiet sessiond.socket 2>/dev/null; then
            systemctl --user disable --now sessiond.socket sessiond.service
        fi
        ;;
    Darwin) launchctl bootout "gui/$(id -u)/io.session-bridge.sessiond" 2>/dev/null || true ;;
esac
# Turns that run are cancelled, as with every stop; there may be none that runs.
"$prefix/bin/sessionctl" --no-start stop >/dev/null 2>&1 || true

while IFS= read -r file; do
    rm -f "$file"
done <"$installed"
rm -f "$installed"
rmdir "$prefix/share/session-bridge" 2>/dev/null || true
echo "removed from $prefix; conversations and configuration are where they were"
