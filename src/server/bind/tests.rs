//! The file and folder side of the socket, on real folders.

use std::os::unix::net::UnixStream;

use super::*;

/// A dead socket, as a killed daemon leaves it.
fn dead_socket(path: &Path) {
    drop(std::os::unix::net::UnixListener::bind(path).unwrap());
}

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
async fn what_is_not_a_socket_is_never_removed() {
    let home = tempfile::tempdir().unwrap();
    fs::set_permissions(home.path(), Permissions::from_mode(0o700)).unwrap();
    let file = home.path().join("file");
    fs::write(&file, "precious").unwrap();
    let folder = home.path().join("folder");
    fs::create_dir(&folder).unwrap();
    let link = home.path().join("link");
    let target = home.path().join("target.sock");
    dead_socket(&target);
    std::os::unix::fs::symlink(&target, &link).unwrap();
    for path in [&file, &folder, &link] {
        let error = PrivateSocket::bind(path).unwrap_err();
        assert!(matches!(error, BindError::NotASocket { .. }), "{error}");
    }
    assert_eq!(fs::read_to_string(&file).unwrap(), "precious");
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
}

#[tokio::test]
async fn a_path_that_does_not_fit_names_the_limit() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("x".repeat(PATH_LIMIT_BYTES));
    let error = PrivateSocket::bind(&path).unwrap_err();
    assert!(matches!(error, BindError::PathTooLong { .. }), "{error}");
    let text = error.to_string();
    assert!(
        text.contains(&PATH_LIMIT_BYTES.to_string()) && text.contains("--socket"),
        "{text}"
    );

    let longest = |length: usize| {
        let folder = home.path().as_os_str().len() + 1;
        home.path().join("x".repeat(length - folder))
    };
    fs::set_permissions(home.path(), Permissions::from_mode(0o700)).unwrap();
    PrivateSocket::bind(&longest(PATH_LIMIT_BYTES)).unwrap();
    assert!(matches!(
        PrivateSocket::bind(&longest(PATH_LIMIT_BYTES + 1)),
        Err(BindError::PathTooLong { .. })
    ));
}

#[tokio::test]
async fn a_path_that_names_no_file_is_refused() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("folder");
    fs::create_dir(&path).unwrap();
    let error = PrivateSocket::bind(&path.join("..")).unwrap_err();
    assert!(matches!(error, BindError::NotASocket { .. }), "{error}");
    PrivateSocket::bind(Path::new("/")).unwrap_err();
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
