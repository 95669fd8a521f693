//! A client of another user.

use std::fs::{self, Permissions};
use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::Path;

use serde_json::json;

use super::support::{DEADLINE, request, start, within};
use crate::server::SocketLimits;

#[tokio::test]
async fn a_connection_of_another_user_is_closed_without_an_answer() {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: only root can connect as another user");
        return;
    }
    let server = start(SocketLimits::default());
    // Wide open, so that only the check of the peer is left.
    for folder in server.path.ancestors().skip(1).take(2) {
        fs::set_permissions(folder, Permissions::from_mode(0o755)).unwrap();
    }
    fs::set_permissions(&server.path, Permissions::from_mode(0o666)).unwrap();
    for (uid, is_answered) in [(65534, false), (0, true)] {
        let path = server.path.clone();
        let answer = tokio::task::spawn_blocking(move || answer_to(uid, &path));
        let answer = within(answer).await.unwrap();
        assert_eq!(answer.contains(r#""id":1"#), is_answered, "uid {uid}: {answer}");
        assert_eq!(answer.is_empty(), !is_answered, "uid {uid}: {answer}");
    }
}

/// What a client of this user gets for a call. Linux keeps the user per thread, so a thread is enough.
fn answer_to(uid: u32, path: &Path) -> String {
    let path = path.to_owned();
    let client = std::thread::spawn(move || {
        rustix::thread::set_thread_uid(rustix::process::Uid::from_raw(uid)).unwrap();
        let mut stream = UnixStream::connect(path).unwrap();
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        // A refused client may find the socket closed already.
        if stream
            .write_all(request(1, "test/echo", json!({})).as_bytes())
            .is_ok()
        {
            stream.shutdown(Shutdown::Write).ok();
        }
        let mut received = Vec::new();
        match stream.read_to_end(&mut received) {
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::ConnectionReset => {}
            Err(error) => panic!("{error}"),
        }
        String::from_utf8(received).unwrap()
    });
    client.join().unwrap()
}
