//! Socket activation: the socket that a service manager listens on and passes to the daemon.
//!
//! This module takes the first descriptor that was passed to this process by systemd's protocol (`sd_listen_fds`). The
//! room `server` checks the socket's path and its folder.

use std::os::unix::net::UnixListener;

use listenfd::ListenFd;

/// Returns the passed listening socket, if any. Processes started later do not inherit it.
///
/// # Errors
/// If the passed descriptor is not a listening Unix socket.
pub(super) fn listener() -> std::io::Result<Option<UnixListener>> {
    // The variables may be meant for an ancestor, from which this process inherited them.
    let is_for_us = std::env::var("LISTEN_PID").is_ok_and(|pid| pid == std::process::id().to_string());
    if !is_for_us {
        return Ok(None);
    }
    ListenFd::from_env().take_unix_listener(0)
}
