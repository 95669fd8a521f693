//! The file and folder side of the socket, on real folders.

use std::os::unix::net::UnixStream;

use super::*;

#[tokio::test]
async fn a_live_socket_is_respected() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("s.sock");
    fs::set_permissions(home.path(), Permissions::from_mode(0o700)).unwrap();
    let first = PrivateSocket::bind(&path).unwrap();
    let error = PrivateSocket::bind(&path).unwrap_err();
    assert!(matches!(error, BindError::InUse { .. }), "{error}");
    UnixStream::connect(first.file.path()).unwrap();
}

#[tokio::test]
async fn a_live_socket_whose_queue_is_full_is_respected() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("s.sock");
    fs::set_permissions(home.path(), Permissions::from_mode(0o700)).unwrap();
    let listener = UnixSocket::new_stream().unwrap();
    let address = SocketAddrUnix::new(&path).unwrap();
    rustix::net::bind(&listener, &address).unwrap();
    rustix::net::listen(&listener, 0).unwrap();
    let mut waiting = Vec::new();
    loop {
        let client = UnixSocket::new_stream().unwrap();
        let full = rustix::net::connect(&client, &address).is_err();
        waiting.push(client);
        if full {
            break;
        }
    }
    assert!(matches!(PrivateSocket::bind(&path), Err(BindError::InUse { .. })));
    assert!(path.exists());
}

#[tokio::test]
async fn a_socket_that_took_its_place_is_left_alone() {
    let home = tempfile::tempdir().unwrap();
    fs::set_permissions(home.path(), Permissions::from_mode(0o700)).unwrap();
    let path = home.path().join("s.sock");
    let first = PrivateSocket::bind(&path).unwrap();
    // The old file is kept elsewhere, so that its number is not given to the new one.
    fs::rename(&path, home.path().join("old.sock")).unwrap();
    let second = PrivateSocket::bind(&path).unwrap();
    drop(first);
    UnixStream::connect(second.file.path()).unwrap();
}
