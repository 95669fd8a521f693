#!/bin/sh
# Installs sessiond and sessionctl from this source for one user, or below another prefix. Run again it replaces what it installed.
set -eu

usage() {
    cat <<'END'
Usage: packaging/install.sh [--prefix DIR] [--from DIR] [--service]

Builds sessionctl and installs it, also as sessiond, with completions, manual pages, documentation and the units of the service.
BUILD_PROFILE in the environment names the profile to build with [default: dist; it takes minutes].

  --prefix DIR  folder to install in [default: ~/.local]
  --from DIR    folder of an already built sessionctl [default: build it]
  --service     run the daemon as a service, now and after each login
END
}

fail() {
    echo "install.sh: $1" >&2
    exit "${2:-1}"
}

# misused MESSAGE: prints the usage and the message, and fails.
misused() {
    usage >&2
    fail "$1" 2
}

# folder OPTION VALUE…: fails without a value. A folder whose name begins with "-" is given as "./-…".
folder() {
    case "${2:-}" in
        "" | -*) misused "$1 needs a folder" ;;
    esac
}

prefix="${HOME:+$HOME/.local}"
from=
service=
while [ $# -gt 0 ]; do
    case "$1" in
        --prefix) folder "$@"; prefix="$2"; shift ;;
        --from) folder "$@"; from="$2"; shift ;;
        --service) service=yes ;;
        -h | --help) usage; exit 0 ;;
        *) misused "unknown argument: \"$1\"" ;;
    esac
    shift
done
[ -n "$prefix" ] || fail "HOME is not set; name the folder with --prefix DIR" 2
[ -n "${HOME:-}" ] || [ -z "$service" ] || fail "HOME is not set; --service needs it" 2
case "$prefix" in
    /*) ;;
    *) fail "--prefix takes an absolute path, not \"$prefix\"" 2 ;;
esac

prefix="${prefix%/}"
# A user has one service. A user's own units replace those of the system, and linked units replace units that are not enabled.
if [ -n "$service" ] && [ "$(uname -s)" = Linux ] && command -v systemctl >/dev/null; then
    unit=share/systemd/user/sessiond.socket
    other="$(systemctl --user show --property FragmentPath --value sessiond.socket 2>/dev/null || true)"
    # systemd reports nothing for a dangling link, and does not replace it.
    link="${XDG_CONFIG_HOME:-$HOME/.config}/systemd/user/sessiond.socket"
    [ ! -L "$link" ] || other="$link"
    case "$other" in
        "" | /usr/* | /lib/*) ;;
        *)
            # If the unit was deleted, only the link shows where it was.
            real="$(readlink -f "$other" || true)"
            [ -e "$other" ] || real="$(readlink "$other" || true)"
            if [ -z "$real" ] || [ "$real" = "$prefix/$unit" ] || [ "$other" -ef "$prefix/$unit" ]; then
                :
            elif [ "${real%/"$unit"}" = "$real" ]; then
                fail "this user already has another unit, $other; remove it first, with the files that belong to it"
            elif [ -L "$other" ] || [ "$(systemctl --user is-enabled sessiond.socket sessiond.service 2>/dev/null | sort -u)" != disabled ]; then
                fail "the service is already installed in ${real%/"$unit"}; remove it first: packaging/uninstall.sh --prefix '${real%/"$unit"}'"
            fi
            ;;
    esac
fi
source="$(cd "$(dirname "$0")/.." && pwd)"
if [ -z "$from" ]; then
    command -v cargo >/dev/null || fail "cargo was not found; install Rust first (https://rustup.rs)"
    cd "$source"
    profile="${BUILD_PROFILE:-dist}"
    cargo build --profile "$profile" --locked --bin sessionctl
    # Cargo writes the profile "dev" to the folder "debug". A relative target folder is relative to this folder too.
    [ "$profile" != dev ] || profile=debug
    from="${CARGO_TARGET_DIR:-target}/$profile"
fi
[ -x "$from/sessionctl" ] || fail "program not found: $from/sessionctl"

bin="$prefix/bin"
share="$prefix/share"
mkdir -p "$bin" "$share/session-bridge"
installed="$share/session-bridge/installed"
is_first=
[ -f "$installed" ] || is_first=yes
: >"$installed.new"

# One program under two names: its name decides what it does. Under another name first: a running program cannot be written to.
cp "$from/sessionctl" "$bin/.sessionctl.new"
chmod 755 "$bin/.sessionctl.new"
ln -f "$bin/.sessionctl.new" "$bin/.sessiond.new"
for program in sessiond sessionctl; do
    mv -f "$bin/.$program.new" "$bin/$program"
    echo "$bin/$program" >>"$installed.new"
done
"$bin/sessionctl" generate "$prefix" >>"$installed.new"

# put FILE PLACE NAME VALUE…: installs a file with each @NAME@ replaced by its value, in the notation of the file.
put() {
    file="$1" place="$2" script=
    shift 2
    while [ $# -gt 0 ]; do
        script="${script:+$script;}s|@$1@|$(printf '%s' "$2" | sed 's/[\\&|]/\\&/g')|g"
        shift 2
    done
    mkdir -p "$(dirname "$place")"
    sed "$script" "$source/packaging/$file" >"$place"
    echo "$place" >>"$installed.new"
}
# Escapes text for XML.
xml() {
    printf '%s' "$1" | sed 's/&/\&amp;/g; s/</\&lt;/g; s/>/\&gt;/g'
}
# The login shell of this user if it supports "-lc" and this quoting, else the system's default shell.
login_shell() {
    shell="$(dscl . -read "/Users/$(id -un)" UserShell 2>/dev/null | sed -n 's/^UserShell: //p')"
    shell="${shell:-${SHELL:-}}"
    case "$shell" in
        /*/zsh | /*/bash | /*/fish | /*/ksh | /*/dash | /*/sh) [ -x "$shell" ] || shell=/bin/zsh ;;
        *) shell=/bin/zsh ;;
    esac
    printf '%s' "$shell"
}
# Documentation, in the same folders as in the source tree, so that links in it work.
doc="$share/doc/session-bridge"
mkdir -p "$doc/packaging/clients" "$doc/packaging/docs"
for file in "$source"/README.md "$source"/CHANGELOG.md "$source"/LICENSE "$source"/packaging/openrpc.json \
    "$source"/packaging/docs/* "$source"/packaging/clients/*.*; do
    place="$doc/${file#"$source/"}"
    install -m 644 "$file" "$place"
    echo "$place" >>"$installed.new"
done
case "$(uname -s)" in
    Linux)
        quoted="$(printf '%s' "$bin" | sed 's/[\\"]/\\&/g; s/%/%%/g')"
        put systemd/sessiond.service "$share/systemd/user/sessiond.service" bindir "$quoted"
        put systemd/sessiond.socket "$share/systemd/user/sessiond.socket" bindir "$quoted"
        ;;
    Darwin)
        agent="$HOME/Library/LaunchAgents/io.session-bridge.sessiond.plist"
        if [ -n "$service" ] || [ -f "$agent" ]; then
            logs="$HOME/Library/Logs"
            mkdir -p "$logs"
            # For use within single quotes of the shell.
            quoted="$(printf '%s' "$bin" | sed "s/'/'\\\\''/g")"
            put launchd/io.session-bridge.sessiond.plist "$agent" \
                shell "$(xml "$(login_shell)")" bindir "$(xml "$quoted")" logs "$(xml "$logs")"
        fi
        ;;
esac
# Files of the previous version that this one does not have.
if [ -f "$installed" ]; then
    while IFS= read -r file; do
        grep -qxF "$file" "$installed.new" || rm -f "$file"
    done <"$installed"
fi
mv -f "$installed.new" "$installed"

if [ -n "$service" ]; then
    # A daemon that was started on demand holds the lock; the service continues its conversations.
    "$bin/sessionctl" --no-start stop >/dev/null 2>&1 || true
    case "$(uname -s)" in
        Linux)
            command -v systemctl >/dev/null || fail "installed in $prefix, but not as a service: systemctl was not found. sessionctl starts the daemon when needed"
            systemctl --user daemon-reload || fail "installed in $prefix, but not as a service: systemd does not run for this user. sessionctl starts the daemon when needed"
            # systemd does not look in other folders.
            case "$share" in
                "$HOME/.local/share" | "${XDG_DATA_HOME:-$HOME/.local/share}" | /usr/local/share | /usr/share) ;;
                *) systemctl --user link "$share/systemd/user/sessiond.socket" "$share/systemd/user/sessiond.service" ;;
            esac
            # Started with the session and not by the first client, because scheduled continuations need no client. Each linked unit
            # must be named.
            # Restarted, because systemd may not yet have seen that the daemon it ran has ended, and would not start it again.
            { systemctl --user enable sessiond.socket sessiond.service && systemctl --user restart sessiond.socket sessiond.service; } ||
                fail "installed in $prefix, but the service does not start. To see why: systemctl --user status sessiond. When it is fixed: systemctl --user restart sessiond.socket sessiond"
            ;;
        Darwin)
            launchctl bootout "gui/$(id -u)/io.session-bridge.sessiond" 2>/dev/null || true
            launchctl bootstrap "gui/$(id -u)" "$agent"
            ;;
        *) fail "installed in $prefix, but not as a service: this system has no supported service manager. sessionctl starts the daemon when needed" ;;
    esac
fi

remove=packaging/uninstall.sh
[ "$prefix" = "${HOME:-}/.local" ] || remove="$remove --prefix '$prefix'"
echo "installed in $prefix; to remove it and keep your data: $remove"
case ":$PATH:" in
    *":$bin:"*) ;;
    *) echo "add $bin to your PATH" ;;
esac
# bash and fish find completions below a home automatically.
case "$is_first:${SHELL:-}:$share" in
    yes:*/zsh:"${HOME:-/}"/*)
        echo "for completions in zsh: fpath=('$share/zsh/site-functions' \$fpath) in ~/.zshrc, before compinit" ;;
esac
