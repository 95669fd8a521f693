#!/bin/sh
# Removes what install.sh installed. Conversations, configuration and the agents' transcripts stay.
set -eu

usage() {
    echo "Usage: packaging/uninstall.sh [--prefix DIR]"
}

fail() {
    echo "uninstall.sh: $1" >&2
    exit "${2:-1}"
}

# misused MESSAGE: prints the usage and the message, and fails.
misused() {
    usage >&2
    fail "$1" 2
}

prefix="${HOME:+$HOME/.local}"
while [ $# -gt 0 ]; do
    case "$1" in
        --prefix)
            # As install.sh takes it.
            case "${2:-}" in
                "" | -*) misused "--prefix needs a folder" ;;
            esac
            prefix="$2"
            shift
            ;;
        -h | --help) usage; exit 0 ;;
        *) misused "unknown argument: \"$1\"" ;;
    esac
    shift
done
case "$prefix" in
    /*) ;;
    "") fail "HOME is not set; name the folder with --prefix DIR" 2 ;;
    *) fail "--prefix takes an absolute path, not \"$prefix\"" 2 ;;
esac
prefix="${prefix%/}"
installed="$prefix/share/session-bridge/installed"
is_installed=
[ ! -f "$installed" ] || is_installed=yes
real="$(cd "$prefix" 2>/dev/null && pwd -P || echo "$prefix")"
units="${XDG_CONFIG_HOME:-${HOME:-}/.config}/systemd/user"

# Whether a path under which systemd knows a unit, or its link, leads to a unit of this prefix, even if that was deleted.
is_ours() {
    unit="share/systemd/user/${1##*/}"
    # Without that list, the unit was not installed by install.sh.
    [ -n "$is_installed" ] || [ ! -e "$prefix/$unit" ] || return 1
    [ "$1" -ef "$prefix/$unit" ] && return
    case "$(readlink "$1" || echo "$1")" in
        "$prefix/$unit" | "$real/$unit") ;;
        *) return 1 ;;
    esac
}

reload=
known=
case "$(uname -s)" in
    Linux)
        # Only the service of this prefix. systemd reports a unit of another prefix as the link to it.
        command -v systemctl >/dev/null &&
            known="$(systemctl --user show --property FragmentPath --value sessiond.socket 2>/dev/null)" || true
        if [ -n "$known" ] && is_ours "$known"; then
            systemctl --user stop sessiond.socket sessiond.service ||
                echo "uninstall.sh: cannot stop the service. To see why: systemctl --user status sessiond" >&2
            # Remaining links, such as those to a deleted unit, are removed below.
            systemctl --user disable sessiond.socket sessiond.service || true
            reload=yes
        fi
        ;;
    Darwin) [ -z "$is_installed" ] || launchctl bootout "gui/$(id -u)/io.session-bridge.sessiond" 2>/dev/null || true ;;
esac
# Deletes a file, and then empty folders above it, up to the prefix.
remove() {
    rm -f "$1"
    folder="${1%/*}"
    while case "$folder" in "$prefix"/*) rmdir "$folder" 2>/dev/null ;; *) false ;; esac; do
        folder="${folder%/*}"
    done
}
if [ -n "$is_installed" ]; then
    # Running turns are cancelled, as with every stop. There may be no daemon, or a daemon of another installation.
    pid="$("$prefix/bin/sessionctl" --json --no-start status 2>/dev/null | sed -n 's/.*"pid":\([0-9]*\).*/\1/p')"
    case "$(readlink "/proc/${pid:-none}/exe" || echo unknown)" in
        "$prefix"/bin/* | "$real"/bin/* | unknown) "$prefix/bin/sessionctl" --no-start stop >/dev/null 2>&1 || true ;;
    esac
    while IFS= read -r file; do
        remove "$file"
    done <"$installed"
    remove "$installed"
fi
# Dangling links, if no manager ran that would have removed them, or if the units were deleted before.
for link in "$units"/*.wants/sessiond.* "$units"/sessiond.*; do
    if [ -L "$link" ] && [ ! -e "$link" ] && is_ours "$link"; then
        # systemd may no longer know their files, and still run them.
        [ -n "$known" ] || [ -n "$reload" ] || systemctl --user stop sessiond.socket sessiond.service 2>/dev/null || true
        rm -f "$link"
        # systemd made the folder of enabled units; it is removed with the last of them.
        case "$link" in *.wants/*) rmdir "${link%/*}" 2>/dev/null || true ;; esac
        reload=yes
    fi
done
[ -z "$reload" ] || systemctl --user daemon-reload 2>/dev/null || true
if [ -n "$is_installed" ]; then
    echo "removed from $prefix; conversations and configuration were kept"
else
    echo "nothing is installed in $prefix"
fi
